"""Where a lab keeps what of its nodes, so that another process can find a running lab's nodes.

Beside the administrator's kubeconfig, ``n/<place>`` is a node: ``k`` its kubelet's folder, ``a`` its agent's, ``d`` its
simulated driver's.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from purser.lab.driver import SimulatedDriver
from purser.lab.driver.files import TRUTH_FILE
from purser.lab.kubelet.runtime import Runtime
from purser.lab.processes import GpuProcesses

NODES = "n"


@dataclass(frozen=True)
class NodeFolders:
    """What a lab keeps of one node."""

    folder: Path

    @property
    def kubelet(self) -> Path:
        """What stands for /var/lib/kubelet on the node."""
        return self.folder / "k"

    @property
    def agent(self) -> Path:
        """State of the node's agent; the node's root folder is in it."""
        return self.folder / "a"

    @property
    def host_root(self) -> Path:
        """What stands for / on the node: /proc of processes on GPUs, and what the agent writes on its host."""
        return self.agent / "root"

    @property
    def driver(self) -> Path:
        """The simulated driver's folder, which `SimulatedDriver` is opened with."""
        return self.folder / "d"

    def runtime(self) -> Runtime:
        """The containers that the node's kubelet runs, as files in the kubelet's folder record them."""
        return Runtime(self.kubelet / "pods")

    def processes(self, driver: SimulatedDriver) -> GpuProcesses:
        """Processes on the node's GPUs. ``driver``: the one of `NodeFolders.driver`."""
        return GpuProcesses(driver, self.runtime(), self.host_root)


def node_folders(lab: Path, place: int) -> NodeFolders:
    """The folders of a lab's node. ``lab``: the lab's folder; ``place``: which of its nodes, counted from 0."""
    return NodeFolders(lab / NODES / str(place))


def running_nodes(kubeconfig: Path) -> dict[str, NodeFolders]:
    """The nodes of the lab whose kubeconfig this is, by name, in the lab's order; empty: it is no lab's.

    Raises OSError where a node is removed meanwhile.
    """
    numbered = [each for each in (kubeconfig.parent / NODES).glob("*/d") if each.parent.name.isdecimal()]
    found = [NodeFolders(each.parent) for each in sorted(numbered, key=lambda each: int(each.parent.name))]
    return {str(json.loads((each.driver / TRUTH_FILE).read_bytes())["node"]): each for each in found}
