"""Pools of SR-IOV network devices on a real kubelet: VFs of a tree in the shape of a host's sysfs, some of them below
the same PCIe switches as GPUs."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from purser.agent.host.sysfs import pci_address
from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.core.names import GPU_RESOURCE
from purser.lab.driver import profiles
from tests.unit.agent.sriov.sysfs_tree import INFINIBAND, HostTree

from .kubernetes import RealCluster, busybox_pod
from .purser_processes import PROFILE, Purser

PF = "0000:18:00.0"
INTEL, MELLANOX, NEAR = "intel.com/net", "mellanox.com/rdma", "mellanox.com/vf"
GPUS = [pci_address(gpu.pci) for gpu in profiles.load(PROFILE).gpus]
NICS = [f"0000:{bus}:00.0" for bus in ("0c", "4b", "8b", "ba")]
"""PFs: of each switch one, with two VFs beside two GPUs."""
POOLS = [
    {"resourceName": "vf", "resourcePrefix": "mellanox.com", "selectors": {"linkTypes": ["infiniband"]}},
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
        below_switches(host)
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


def below_switches(host: HostTree) -> None:
    mellanox = {"vendor": "15b3", "driver": "mlx5_core"}
    for number, nic in enumerate(NICS):
        bridge = f"00:{number + 2:02x}.0/0000:{number + 2:02x}:00.0/0000:{number + 2:02x}:01."
        host.pf(
            nic,
            f"ib{number}",
            2,
            vf_driver="mlx5_core",
            vf_device="101e",
            kind=INFINIBAND,
            bridge=f"{bridge}0",
            **mellanox,
        )
        for port, gpu in enumerate(GPUS[2 * number : 2 * number + 2], 1):
            host.function(gpu, vendor="10de", device="20b0", driver="nvidia", kind="030200", bridge=f"{bridge}{port}")


def held(cluster: RealCluster, name: str) -> dict[str, list[str]]:
    """By resource the ids of the pod's devices, as kubelet lists them."""
    options = [("grpc.default_authority", "localhost")]
    with grpc.insecure_channel(f"unix://{cluster.pod_resources_socket}", options=options) as channel:
        listed = api_pb2_grpc.PodResourcesListerStub(channel).List(api_pb2.ListPodResourcesRequest(), timeout=30)
    found: dict[str, list[str]] = {}
    for pod in listed.pod_resources:
        for devices in (each for container in pod.containers for each in container.devices if pod.name == name):
            found.setdefault(devices.resource_name, []).extend(devices.device_ids)
    return found


def asked_first(log: Path, pod: str) -> str:
    """The resource of which kubelet asked first for a pod with a grant, by the agent's log."""
    for line in log.read_text().splitlines():
        told = json.loads(line) if line.startswith("{") else {}
        if told.get("event") == "Allocated devices" and told["pod"] == pod:
            return str(told.get("resource", GPU_RESOURCE))
    raise AssertionError(f"the agent allocated nothing to {pod}")


def test_gpus_get_network_devices_below_their_switches_whichever_kubelet_asks_for_first(stage: Stage) -> None:
    """kubelet goes through the resources of a container in random order."""
    cluster, purser = stage.cluster, stage.purser
    stage.has(NEAR, 8, 8)
    gpus = dict(zip(purser.driver.uuids, range(len(GPUS)), strict=True))
    plain = set(stage.run("plain", NEAR, 3)["PCIDEVICE_MELLANOX_COM_VF"].split(","))
    first: set[str] = set()
    for number in range(24):  # all in the same order: once in eight million runs
        name, count = f"pairs-{number}", 1 + number % 3
        resources = {GPU_RESOURCE: str(count), NEAR: str(count)}
        cluster.create(busybox_pod(name, resources=resources, annotations={"purser.dev/gpu-nic": "required"}))
        cluster.wait_pod(name)
        environment, listed = cluster.container_env("default", name), held(cluster, name)
        vfs = environment["PCIDEVICE_MELLANOX_COM_VF"].split(",")
        uuids = environment["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert set(vfs) == set(listed[NEAR])
        assert set(uuids) == {each.partition("::")[0] for each in listed[GPU_RESOURCE]}
        assert len(vfs) == len(uuids) == count
        assert not plain & set(vfs)
        below = sorted(NICS.index(f"{vf[:8]}00.0") for vf in vfs)
        assert below == sorted(gpus[uuid] // 2 for uuid in uuids)
        have = "GPU has its" if count == 1 else "GPUs have their"
        wanted = f"{count} of {count} {have} network device under the same PCIe switch"
        cluster.wait_until(f"the event of {name}", lambda name=name, wanted=wanted: wanted in granted(cluster, name))
        first.add(asked_first(purser.agent.log, f"default/{name}"))
        cluster.delete("pod", name, "--now")
        if number >= 2 and len(first) == 2:
            break
    assert first == {GPU_RESOURCE, NEAR}
    cluster.delete("pod", "plain", "--now")


def granted(cluster: RealCluster, name: str) -> str:
    events = cluster.get("events")["items"]
    said = [each for each in events if each["involvedObject"].get("name") == name and each["reason"] == "Granted"]
    return " ".join(each["message"] for each in said)
