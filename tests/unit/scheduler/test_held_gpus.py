"""The condition of pods that hold an unhealthy GPU, against the lab's API server over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp.web
import msgspec
import pytest

from purser.core.health.held import held_gpus_fault
from purser.core.model import Device, NodeInventory
from purser.core.names import AGENT_STOPPING, HEALTH_CONDITION, INVENTORY_ANNOTATION
from purser.kube.objects import Pod
from purser.kube.pod_details import POD_SUMMARIES, PodCondition
from purser.kube.resources import NODES, PODS
from purser.scheduler import held_gpus
from purser.scheduler.held_gpus import HeldGpus

from .extender_world import World, eventually, replica, server

XID = "Xid 79: the GPU has fallen off the bus"


@asynccontextmanager
async def following(world: World, is_active: Callable[[], bool] = lambda: True) -> AsyncIterator[None]:
    held = HeldGpus(world.client, world.cache, world.pods, world.nodes, is_active)
    running = asyncio.create_task(held.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def report(world: World, *reasons: str) -> None:
    """The agent's inventory of node n: a GPU for each reason, which is healthy where that is empty."""
    devices = tuple(
        Device(f"n-{i}", i, "NVIDIA A100", 8000, slots=10, healthy=not reason, unhealthy_reason=reason)
        for i, reason in enumerate(reasons)
    )
    annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(NodeInventory("n", devices)).decode()}
    await world.client.patch_merge(NODES, "n", {"metadata": {"annotations": annotations}})


async def bound(world: World, name: str, memory: int) -> Pod:
    pod = await world.add_pod(name, memory)
    assert await world.bind(pod, "n") == ""
    return pod


async def condition(world: World, name: str) -> PodCondition | None:
    pod = await world.client.get(POD_SUMMARIES, name, "default")
    return next((each for each in pod.status.conditions if each.type == HEALTH_CONDITION), None)


async def says(world: World, name: str, words: str | None) -> None:
    """Wait until the condition's message contains the words; None: until there is none."""
    async with asyncio.timeout(60):
        while (found := await condition(world, name)) is None or words is None or words not in found.message:
            if found is None and words is None:
                return
            await asyncio.sleep(0.005)


async def test_only_who_holds_the_unhealthy_gpu_hears_of_it_and_as_long_as_it_is_unhealthy() -> None:
    async with server() as api, replica(api) as world, following(world):
        await world.add_node("n", cards=2)
        sick, well = await bound(world, "sick", 8000), await bound(world, "well", 8000)
        [uuid] = world.ledger.held(sick.metadata.uid)
        index = int(uuid[-1])
        others = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await world.client.patch_merge(PODS, "sick", others, "default", subresource="status", strategic=True)
        await report(world, *(XID if i == index else "" for i in range(2)))
        await says(world, "sick", f"GPU {index} ({uuid}): {XID}. If you recreate")
        await report(world, *("Xid 95" if i == index else "" for i in range(2)))
        await says(world, "sick", "Xid 95")
        assert await condition(world, "well") is None
        await report(world, "", "")
        await says(world, "sick", None)
        left = (await world.client.get(POD_SUMMARIES, "sick", "default")).status.conditions
        assert [each.type for each in left if each.type == "Ready"] == ["Ready"]
        assert well.metadata.uid in world.ledger.uids("n")


async def test_an_agent_that_stops_changes_no_condition() -> None:
    """Of neither kind of pods, and a pod that comes to a node with an unhealthy GPU, but holds another, has none."""
    writes: list[str] = []

    async def note(request: aiohttp.web.Request) -> None:
        if request.method == "PATCH" and request.path.endswith("/status"):
            writes.append(request.path.split("/")[-2])

    async with server() as api, replica(api) as world, following(world):
        await world.add_node("n", cards=2)
        sick = await bound(world, "sick", 8000)
        [uuid] = world.ledger.held(sick.metadata.uid)
        first = uuid == "n-0"
        await report(world, *((XID, "") if first else ("", XID)))
        await says(world, "sick", XID)
        world.api.intercept(note)
        await bound(world, "well", 8000)
        await report(world, *((XID, AGENT_STOPPING) if first else (AGENT_STOPPING, XID)))
        await report(world, *((AGENT_STOPPING, AGENT_STOPPING)))
        await report(world, *((XID, "") if first else ("", XID)))
        await report(world, "", "")
        await says(world, "sick", None)
        assert writes == ["sick"]


async def test_what_an_earlier_process_wrote_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a replica that becomes the active one only later, and missed what another wrote."""
    monkeypatch.setattr(held_gpus, "INACTIVE_RECHECK_PERIOD_S", 0.01)
    active = True
    async with server() as api, replica(api) as world:
        await world.add_node("n")
        await bound(world, "sick", 1000)
        async with following(world):
            await report(world, XID)
            await says(world, "sick", XID)
        await report(world, "")
        await eventually(lambda: all(each.healthy for each in world.ledger.devices("n").values()))
        active = False
        async with following(world, lambda: active):
            await report(world, XID)
            await report(world, "")
            assert await condition(world, "sick") is not None
            active = True
            await says(world, "sick", None)


def test_many_gpus_are_counted() -> None:
    devices = {f"u{i}": Device(f"u{i}", i, "A", 1, healthy=False, unhealthy_reason="x") for i in range(6)}
    assert held_gpus_fault(devices) == (
        "GPU 0 (u0): x; GPU 1 (u1): x; GPU 2 (u2): x; GPU 3 (u3): x; and 2 more. "
        "If you recreate the pod, the new pod gets other GPUs"
    )
    assert held_gpus_fault({"gone": None}) is None
    endless = Device("u", 0, "A", 1, healthy=False, unhealthy_reason="x\n" * 100_000)
    assert len(held_gpus_fault({"u": endless}) or "") < 2_000
    assert held_gpus_fault({}) == ""
