"""What the agent tells of devices that pods hold beyond their grants: nothing where there is nothing."""

from functools import partial

import pytest
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually, node_writes
from tests.unit.agent.emulated_kubelet import Rejected

from purser.agent.kubelet.refusals import RefusalReason
from purser.core.grant.disputes import HeldReason
from purser.core.names import (
    DISPUTED_CONDITION,
    GRANT_ANNOTATION,
    GRANT_SIGNATURE_ANNOTATION,
)
from purser.kube.resources import NODES, PODS

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

HAMIS = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


async def condition(world):
    found = (await world.client.get(NODES, NODE)).status.conditions
    return next((each for each in found if each.type == DISPUTED_CONDITION), None)


async def deface(world, name, value=None):
    gone = {GRANT_ANNOTATION: value, GRANT_SIGNATURE_ANNOTATION: value}
    await world.client.patch_merge(PODS, name, {"metadata": {"annotations": gone}}, "default", subresource="status")


async def start(world, kubelet, name, *parts):
    await world.pod(name, *parts)
    await kubelet.admit(f"default/{name}", [(each.container, len(each.shares)) for each in parts])
    await world.set_phase(name, "Running")


async def end(world, kubelet, name):
    kubelet.remove(f"default/{name}")
    await world.delete_pod(name)


async def test_honest_pods_cost_no_write_to_their_node(world, kubelet, api):
    """The one write is of a pod that is not."""
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.published_again()
        with node_writes(api) as written:
            for name, card in zip("opqr", world.uuids, strict=True):
                await start(world, kubelet, name, part("main", card))
            await world.pod("plain", counts={"main": 0})
            await end(world, kubelet, "o")
            await deface(world, "r")
            told = await eventually(world.disputes)
        assert [each.pod for each in told.held] == ["r"]
        assert [path for path in written if not path.endswith("/status")] == [f"/api/v1/nodes/{NODE}"]
        for name in "pqr":
            await end(world, kubelet, name)


async def test_defaced_pods_keep_what_they_hold_and_their_node_reports_it(world, kubelet):
    a, b, _, _ = world.uuids
    defaced = {
        "removed": (part("main", a, memory_mib=9000), None, HeldReason.GRANT_MISSING, "was removed. "),
        "changed": (part("main", b), "{}", HeldReason.GRANT_UNTRUSTED, "or the key that signed it was revoked. "),
    }
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("stray", counts={"main": 1})  # of which nothing is reported: kubelet never took it
        for name, (main, value, _, _) in defaced.items():
            await start(world, kubelet, name, main)
            await deface(world, name, value)
        held = [(name, (main,), why) for name, (main, _, why, _) in defaced.items()]
        await eventually(lambda: tells(world, lambda each: (each.pod, each.containers, each.why), held))
        for name, (main, _, _, cause) in defaced.items():
            card = main.shares[0].uuid
            await eventually(lambda name=name, card=card: shows(world, f"pod default/{name} holds {card}"))
            said = dict(await eventually(lambda name=name: world.events(name)))
            assert f"{cause}The pod keeps its share of {card} until it terminates" in said["HoldsWithoutGrant"]
            await kubelet.pre_start(kubelet.pods[f"default/{name}"]["main"])  # its container may start again
        assert await agent.metric("purser_agent_disputed_pods", kind="held") == 2
        await world.pod("q", part("main", a, memory_mib=9000))
        with pytest.raises(Rejected, match="MiB would be allocated"):
            await kubelet.admit("default/q", [("main", 1)])
    async with world.agent():  # by its checkpoint the next agent knows as much
        await end(world, kubelet, "q")
        assert await tells(world, lambda each: each.pod, list(defaced))
        for name in defaced:
            await end(world, kubelet, name)
        await eventually(lambda: is_settled(world))
        reasons = await eventually(lambda: world.events(NODE))
        assert "GpuDisputed" in [reason for reason, _ in reasons]


async def tells(world, what, expected):
    """Of pods that hold something, in any order."""
    found = await world.disputes()
    return found is not None and sorted(map(what, found.held)) == sorted(expected)


async def shows(world, text):
    shown = await condition(world)
    return shown is not None and shown.status == "True" and text in shown.message


async def is_settled(world):
    return (await world.disputes(), await condition(world)) == (None, None)


async def test_what_another_plugins_pods_hold_is_reported(world, kubelet):
    """HAMi's ids, which kubelet lists, and the annotation that says which card such a pod really has."""
    a, b, c, _ = world.uuids
    annotation = {"hami.io/vgpu-devices-allocated": f"{b},NVIDIA,1000,30:;{HAMIS},NVIDIA,1000,0:;"}
    await world.pod("old", counts={"main": 1}, annotations=annotation)
    await world.set_phase("old", "Running")
    kubelet.pods["default/old"] = {"main": [f"{a}-3"]}
    async with world.agent() as agent:
        await eventually(agent.ready)
        stranger = (tuple(sorted([a, b])), HeldReason.NEVER_GRANTED)
        await eventually(lambda: tells(world, lambda each: (each.uuids, each.why), [stranger]))
        for card in (a, b):
            name = f"p-{card}".lower()
            await world.pod(name, part("main", card))
            with pytest.raises(Rejected, match="pod default/old holds device"):
                await kubelet.admit(f"default/{name}", [("main", 1)])
            ((reason, _),) = await eventually(partial(world.events, name))
            assert reason == RefusalReason.STRANGER
            await end(world, kubelet, name)
        await start(world, kubelet, "q", part("main", c))
        await end(world, kubelet, "old")
        await eventually(lambda: is_settled(world))
        await start(world, kubelet, "p", part("main", a))


async def test_a_pod_is_not_told_the_name_of_another_namespaces_pod_but_the_node_is(world, kubelet):
    card = world.uuids[0]
    kubelet.pods["team-b/secret"] = {"main": [f"{card}-3"]}
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", card))
        with pytest.raises(Rejected, match="for a pod in another namespace, but that pod no longer exists") as refused:
            await kubelet.admit("default/p", [("main", 1)])
        assert "secret" not in str(refused.value)
        await eventually(lambda: shows(world, "blocked by team-b/secret"))


async def test_a_refusal_is_reported_with_who_is_in_the_way_until_it_is_over(world, kubelet):
    a = world.uuids[0]
    async with world.agent() as agent:
        await eventually(agent.ready)
        await start(world, kubelet, "p", part("main", a, memory_mib=9000))
        await world.pod("q", part("main", a, memory_mib=9000))
        with pytest.raises(Rejected):
            await kubelet.admit("default/q", [("main", 1)])
        found = await eventually(world.disputes)
        assert [(e.pod, e.reason, e.uuids, e.in_the_way) for e in found.refused] == [
            ("q", "DeviceOvercommitted", (a,), ("default/p",))
        ]
        kubelet.remove("default/q")
        await world.set_phase("q", "Failed")
        await eventually(lambda: is_settled(world))


async def test_a_running_pod_that_holds_nothing_is_reported_as_such(world, kubelet):
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("idle", counts={"main": 1})
        await world.set_phase("idle", "Running")
        found = await eventually(world.disputes)
        assert [(each.pod, each.gpus) for each in found.held] == [("idle", frozenset())]
        assert await condition(world) is None
