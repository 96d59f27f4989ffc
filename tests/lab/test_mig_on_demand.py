"""GPUs that are cut on demand, from a pod's request to the MIG device in its container."""

import pytest

from purser.adapters.nodes import inventory_of
from purser.core.sharing import CONFIG_LABEL
from purser.kube.resources import NODES
from purser.lab.cluster import Lab
from purser.lab.driver.node_mig import create_mig, mig_states, set_mig
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import create, delete, event, eventually, grant_of, running
from tests.scenarios.pods import GPU, pod

NODE = "a100-40gb-8-0"
SMALL, HALF = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


@pytest.fixture
async def cluster(quiet_logs, tmp_path, monkeypatch):
    monkeypatch.setattr("purser.agent.instances.keeping.IDLE_S", 0.2)
    (tmp_path / "cut").write_text("version: v1\nflags: {migStrategy: on-demand}\n")
    (tmp_path / "default").write_text("version: v1\n")
    settings = LabSettings(node_choices(["a100-40gb-8"]), device_plugin_configs=tmp_path, probe_interval_s=0.2)
    async with Lab(settings) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = LabCluster(lab, "cut")
        await cluster.set_up()
        driver = lab.nodes[NODE].driver
        set_mig(driver.folder, 0, enabled=True)
        create_mig(driver.folder, 0, "1g.5gb", start=6)
        for gpu in range(1, 8):
            driver.lose_gpu(gpu)
        await lab.client.patch_merge(NODES, NODE, {"metadata": {"labels": {CONFIG_LABEL: "cut"}}})
        await eventually(cluster, "the GPU is listed as cut on demand", lambda: listed(cluster))
        yield cluster, driver


async def listed(cluster):
    node = await cluster.client.get(NODES, NODE)
    first, *_ = inventory_of(node).devices
    assert [each.start for each in first.mig_held] == [6]
    assert node.status.allocatable.get(HALF) == "2"
    return True


async def run(cluster, limits, *names):
    await create(cluster, *(pod(cluster, name, limits, nodeSelector={}) for name in names))


async def mig_device(cluster, name):
    return (await cluster.container_env(name, "main"))["NVIDIA_VISIBLE_DEVICES"]


def cut(driver):
    return sorted(each.start for each in mig_states(driver.folder)[0].instances.values())


@pytest.mark.gate
async def test_pods_get_instances_that_are_created_for_them(cluster):
    cluster, driver = cluster
    await run(cluster, {HALF: "1"}, "half")
    await run(cluster, {SMALL: "1"}, "small")
    await run(cluster, {GPU: "1", "nvidia.com/gpumem": "4000"}, "share")
    found = await running(cluster, ["half", "small", "share"])
    devices = [await mig_device(cluster, name) for name in found]
    uuids = [uuid for each in devices for uuid in each.split(",")]
    assert len(set(uuids)) == 3
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    placements = {share.mig for each in found.values() for part in grant_of(each).containers for share in part.shares}
    assert {each.profile for each in placements} == {"3g.20gb", "1g.5gb"}
    assert cut(driver) == sorted([6, *(each.start for each in placements)])
    await run(cluster, {HALF: "1"}, "late")
    await event(cluster, "late", "FailedScheduling")
    await delete(cluster, "half")
    await running(cluster, ["late"])
    assert (await mig_device(cluster, "late")).startswith("MIG-")
    for name in ("small", "share"):
        await delete(cluster, name)
    await run(cluster, {SMALL: "2"}, "two")  # on a place each, of the same GPU
    await running(cluster, ["two"])
    assert len((await mig_device(cluster, "two")).split(",")) == 2
    for name in ("late", "two"):
        await delete(cluster, name)

    async def is_empty():
        assert cut(driver) == [6], "only what the administrator made is left"
        return True

    await eventually(cluster, "instances are destroyed", is_empty)
