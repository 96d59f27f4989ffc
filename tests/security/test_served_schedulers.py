"""What may be had through a scheduler that is served, by whoever binds in its name: no more than any pod may have."""

import asyncio

import pytest

from purser.core.names import AWAITS_GRANT_ANNOTATION
from purser.kube.resources import PODS
from purser.scheduler.binding import ServedPods
from tests.unit.scheduler.extender_world import BINPACK, eventually, replica, server

ASKS = {"nvidia.com/gpu": "1", "volcano.sh/gpu-memory": "5000"}
RECORD = {"volcano.sh/gpu-index": "0"}


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"volcano.sh/gpu-index": "0,1"}, id="more GPUs than it asks for"),
        pytest.param({"volcano.sh/vgpu-node": "n", "volcano.sh/vgpu-ids-new": "n-0,NVIDIA,1,1:"}, id="less of a GPU"),
        pytest.param({**RECORD, "volcano.sh/gpu-assigned": "true"}, id="it is served already"),
        pytest.param({**RECORD, AWAITS_GRANT_ANNOTATION: "true"}, id="it waits again"),
    ],
)
async def test_a_pod_holds_what_it_asks_for_and_each_gpu_is_given_once(said):
    async with server() as api, replica(api) as world:
        await world.add_node("n", cards=2)
        served = (world.client, world.cache, world.keys, world.pods, world.events, lambda: True, ["volcano"], BINPACK)
        task = asyncio.create_task(ServedPods(*served).run())
        main = {"name": "c", "image": "i", "resources": {"limits": ASKS}}
        spec = {"schedulerName": "volcano", "containers": [main]}
        pods = [
            await world.add_pod(name, spec=spec, annotations={AWAITS_GRANT_ANNOTATION: "true"})
            for name in ("a", "b", "c")
        ]
        for pod in pods:
            await world.client.bind("default", pod.metadata.name, pod.metadata.uid, "n", said)
            await eventually(lambda pod=pod: answered(world, pod))
        for pod in pods:  # through the status, which no webhook sees
            patch = {"metadata": {"annotations": said}}
            await world.client.patch_merge(PODS, pod.metadata.name, patch, "default", subresource="status")
        await eventually(lambda: answered(world, pods[-1]))
        assert world.memory_used("n") == 10000
        assert sorted(usage.memory_mib for usage in world.ledger.usage("n").values()) == [5000, 5000]
        assert not world.ledger.violations("n")
        task.cancel()


def answered(world, pod):
    there = world.cache.pod_by_uid(pod.metadata.uid).metadata.annotations
    return "purser.dev/grant" in there or there[AWAITS_GRANT_ANNOTATION] == "false"
