"""Pods of one GPU leave NVLink pairs whole for the pods of two that come after them."""

import pytest

from purser.adapters.nodes import inventory_of
from purser.core.interconnect import topology
from purser.kube.resources import NODES
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import create, grant_of, pod_named, running
from tests.scenarios.pods import pod, whole

ON_DGX = {"nodeSelector": {"kubernetes.io/hostname": "dgx1-v100-0"}}
BY_LINKS = {"purser.dev/gpu-policy": "topology-aware"}


@pytest.fixture
async def dgx(quiet_logs):
    async with Lab(LabSettings(node_choices(["dgx1-v100"]), slots=1)) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = LabCluster(lab, "pairs")
        await cluster.set_up()
        yield cluster


async def test_two_gpus_are_linked_directly_however_many_pods_of_one_came_before(dgx):
    singles, pairs = [f"one-{n}" for n in range(4)], ["two-a", "two-b"]
    for name in singles:
        await create(dgx, pod(dgx, name, whole(), annotations=BY_LINKS, **ON_DGX))
        await running(dgx, [name])
    for name in pairs:
        await create(dgx, pod(dgx, name, whole(2), annotations=BY_LINKS, **ON_DGX))
        await running(dgx, [name])
    [node] = (await dgx.client.list(NODES)).items
    devices = inventory_of(node).devices
    scores = topology(devices).scores
    place = {device.uuid: index for index, device in enumerate(devices)}
    double = max(map(max, scores))
    for name in pairs:
        [part] = grant_of(await pod_named(dgx, name)).containers
        first, second = (place[uuid] for uuid in part.uuids)
        assert scores[first][second] == double, (name, first, second)
