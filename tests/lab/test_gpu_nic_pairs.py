"""GPUs and network devices under one PCIe switch, from the pod to the environment of its container."""

import pytest

from purser.adapters.nodes import inventory_of
from purser.agent.host.sysfs import pci_address
from purser.core.kubelet.config import TopologyPolicy
from purser.kube.resources import EVENTS, NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.driver import profiles
from purser.lab.driver.sysfs_nics import POOL
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import create, eventually, running
from tests.scenarios.pods import pod, whole

PROFILE = profiles.load("dgx-a100-nics")
SWITCH = {pci_address(device): number for number, switch in enumerate(PROFILE.switches) for device in switch.below}
KUBELET = KubeletSection(topologyManagerPolicy=TopologyPolicy.RESTRICTED)
REQUIRED = {"purser.dev/gpu-nic": "required"}


@pytest.fixture
async def dgx(quiet_logs):
    settings = LabSettings(node_choices(["dgx-a100-nics"]), kubelet=KUBELET, probe_interval_s=0.2)
    async with Lab(settings) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = LabCluster(lab, "nics")
        await cluster.set_up()
        await eventually(cluster, "the node's pool is published", lambda: _published(cluster, 8))
        yield cluster


async def _published(cluster, count):
    [node] = (await cluster.client.list(NODES)).items
    found = inventory_of(node)
    listed = int(node.status.allocatable.get(POOL, 0))
    return found is not None and listed and sum(place.count for pool in found.pools for place in pool.places) == count


async def switches(cluster, name):
    """Of the pod's GPUs and of its VFs, as its container was started."""
    env = await cluster.container_env(name, "main")
    gpus = dict(zip(cluster.uuids, (pci_address(gpu.pci) for gpu in PROFILE.gpus), strict=True))
    vfs = env["PCIDEVICE_MELLANOX_COM_VF"].split(",")
    held = [gpus[uuid] for uuid in env["NVIDIA_VISIBLE_DEVICES"].split(",")]
    return sorted(SWITCH[each] for each in held), sorted(SWITCH[f"{each[:-1]}0"] for each in vfs)


async def said(cluster, name, reason):
    async def found():
        events = (await cluster.client.list(EVENTS, cluster.namespace)).items
        return [each.message for each in events if each.involved_object.name == name and each.reason == reason]

    return (await eventually(cluster, f"{reason} of {name}", found))[-1]


async def test_every_gpu_has_its_vf_below_its_switch(dgx):
    for name, count in (("one", 1), ("two", 2), ("other", 1), ("four", 4)):
        await create(dgx, pod(dgx, name, {**whole(count), POOL: str(count)}, annotations=REQUIRED))
        await running(dgx, [name])
        gpus, vfs = await switches(dgx, name)
        assert gpus == vfs, name
        have = "GPU has its" if count == 1 else "GPUs have their"
        wanted = f"{count} of {count} {have} network device under the same PCIe switch"
        assert wanted in await said(dgx, name, "Granted")
    await dgx.client.delete(PODS, "one", dgx.namespace)
    await create(dgx, pod(dgx, "plain", {POOL: "1"}))
    await running(dgx, ["plain"])
    await eventually(dgx, "what grants say is not published again", lambda: _published(dgx, 7))
