"""Pools of SR-IOV network devices on a real kubelet: VFs of a tree in the shape of a host's sysfs."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.agent.sriov.sysfs_tree import HostTree

from .kubernetes import RealCluster, busybox_pod
from .purser_processes import Purser

PF = "0000:18:00.0"
INTEL, MELLANOX = "intel.com/net", "mellanox.com/rdma"
POOLS = [
    {"resourceName": "net", "selectors": {"pfNames": ["ens1f0#0-63"]}, "additionalInfo": {"*": {"plane": "a"}}},
    {"resourceName": "rdma", "resourcePrefix": "mellanox.com", "selectors": {"vendors": ["15b3"]}},
]


class Stage(NamedTuple):
    cluster: RealCluster
    purser: Purser
    host: HostTree

    def has(self, resource: str, listed: int, healthy: int) -> None:
        """Wait until the node lists so many devices, and so many of them healthy."""

        def probe() -> bool:
            status = self.cluster.get("node", self.cluster.node_name)["status"]
            found = [int(status[each].get(resource, -1)) for each in ("capacity", "allocatable")]
            return found == [listed, healthy]

        self.cluster.wait_until(f"the node has {healthy} of {listed} {resource}", probe)

    def run(self, name: str, resource: str, count: int) -> dict[str, str]:
        """A pod with so many devices; its environment."""
        self.cluster.create(busybox_pod(name, resources={resource: str(count)}))
        self.cluster.wait_pod(name)
        return self.cluster.container_env("default", name)

    def restart_agent(self) -> None:
        self.purser.agent.stop()
        self.purser.agent.start()
        self.purser.wait_agent()


@pytest.fixture(scope="module")
def stage(real_cluster: RealCluster) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="purser-sriov-", dir="/tmp") as folder:
        host = HostTree(Path(folder) / "host")
        host.pf(PF, "ens1f0", 128)
        host.pf("0000:81:00.0", "ens3", 4, vendor="15b3", driver="mlx5_core", vf_driver="mlx5_core")
        config = Path(folder) / "config.json"
        config.write_text(json.dumps({"resourceList": POOLS}))
        purser = Purser(real_cluster, [f"--sriov-config={config}", f"--host-root={host.root}"])
        try:
            purser.start()
            yield Stage(real_cluster, purser, host)
        finally:
            purser.stop()


def test_pods_get_vfs_and_keep_them_through_restarts(stage: Stage) -> None:
    cluster, host = stage.cluster, stage.host
    stage.has(INTEL, 64, 64)
    stage.has(MELLANOX, 4, 4)
    registry = cluster.kubelet_folder / "plugins_registry"
    assert (registry / "intel.com_net.sock").is_socket()
    environment = stage.run("first", INTEL, 2)
    ids = environment["PCIDEVICE_INTEL_COM_NET"].split(",")
    assert len(set(ids)) == 2
    information = json.loads(environment["PCIDEVICE_INTEL_COM_NET_INFO"])
    assert information == {id_: {"generic": {"deviceID": id_}, "extra": {"plane": "a"}} for id_ in ids}
    files = {path.name for path in (host.root / "run/k8s.cni.cncf.io/devinfo/dp").iterdir()}
    assert files == {f"intel.com-net-{id_}-device.json" for id_ in ids}

    for name in ("ens1f0v0", "ens1f0v1", "ens1f0"):
        host.move(name)
    stage.restart_agent()
    stage.has(INTEL, 64, 64)
    cluster.restart_kubelet()
    stage.has(INTEL, 64, 64)
    others = stage.run("second", INTEL, 2)["PCIDEVICE_INTEL_COM_NET"].split(",")
    assert not {*ids} & {*others}
    assert cluster.get("pod", "first")["status"]["phase"] == "Running"
    cluster.delete("pod", "first", "second", "--now")


def test_links_and_vfs_are_followed(stage: Stage) -> None:
    stage.host.carrier("ens3", 0)
    stage.has(MELLANOX, 4, 0)
    stage.host.carrier("ens3", 1)
    stage.has(MELLANOX, 4, 4)
    stage.host.set_vfs("0000:81:00.0", "ens3", 6, driver="mlx5_core", vendor="15b3")
    stage.has(MELLANOX, 6, 6)
