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
    """Those of one node."""

    folder: Path

    @property
    def kubelet(self) -> Path:
        """Its /var/lib/kubelet."""
        return self.folder / "k"

    @property
    def agent(self) -> Path:
        """What its agent keeps."""
        return self.folder / "a"

    @property
    def host_root(self) -> Path:
        """Its /, as far as there is one."""
        return self.agent / "root"

    @property
    def driver(self) -> Path:
        """Its driver's."""
        return self.folder / "d"

    def runtime(self) -> Runtime:
        """Its containers."""
        return Runtime(self.kubelet / "pods")

    def processes(self, driver: SimulatedDriver) -> GpuProcesses:
        """What runs on its GPUs."""
        return GpuProcesses(driver, self.runtime(), self.host_root)


def node_folders(lab: Path, place: int) -> NodeFolders:
    """Of a lab's node, by its place among them."""
    return NodeFolders(lab / NODES / str(place))


def running_nodes(kubeconfig: Path) -> dict[str, NodeFolders]:
    """The nodes of the lab whose kubeconfig this is, by name, in the lab's order; empty: it is no lab's."""
    numbered = [each for each in (kubeconfig.parent / NODES).glob("*/d") if each.parent.name.isdecimal()]
    found = [NodeFolders(each.parent) for each in sorted(numbered, key=lambda each: int(each.parent.name))]
    return {str(json.loads((each.driver / TRUTH_FILE).read_bytes())["node"]): each for each in found}
