"""A pod's status can be written by others than its kubelet: who says of a pod that runs that it has ended frees nothing
of what kubelet lists for it."""

import shutil

import pytest

from purser.agent.reporting import disputes
from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes
from purser.core.names import DISPUTES_ANNOTATION, GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION
from purser.core.node.annotations import encode
from purser.kube.resources import NODES, PODS
from tests.unit.agent import conftest
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually, node_writes
from tests.unit.agent.emulated_kubelet import Rejected
from tests.unit.scheduler.extender_world import eventually as eventually_true
from tests.unit.scheduler.extender_world import replica, server

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

# What an agent runs in, for these tests as well.
api, client, folder, driver = conftest.api, conftest.client, conftest.folder, conftest.driver
kubelet, world, short_waits = conftest.kubelet, conftest.world, conftest.short_waits


MOST = {"memory_mib": 10_000, "cores_percent": 60}
"""More than half of a card."""


async def says_it_has_ended(world, agent, kubelet, card, **metadata):
    await eventually(agent.ready)
    await world.pod("holder", part("main", card, **MOST))
    await kubelet.admit("default/holder", [("main", 1)])
    told = {"metadata": metadata, "status": {"phase": "Succeeded"}}
    await world.client.patch_merge(PODS, "holder", told, "default", subresource="status")


async def test_a_pod_in_a_forged_phase_keeps_what_kubelet_lists_for_it(world, kubelet):
    a, *_ = world.uuids
    async with world.agent() as agent:
        await says_it_has_ended(world, agent, kubelet, a)
        await world.pod("next", part("main", a, **MOST))
        with pytest.raises(Rejected, match="another pod was admitted first"):
            await kubelet.admit("default/next", [("main", 1)])
        kubelet.remove("default/next")
        await world.pod("small", part("main", a))  # what is left of the card is not lost
        await kubelet.admit("default/small", [("main", 1)])
        kubelet.remove("default/holder")  # now it has ended, and its object stays
        await world.pod("later", part("main", a, **MOST))
        await kubelet.admit("default/later", [("main", 1)])


async def test_nor_are_its_devices_free_without_its_grant(world, kubelet):
    a, *_ = world.uuids
    async with world.agent() as agent:
        gone = dict.fromkeys((GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION))
        await says_it_has_ended(world, agent, kubelet, a, annotations=gone)
        await world.pod("next", part("main", a, **MOST))
        with pytest.raises(Rejected, match="another pod was admitted first"):
            await kubelet.admit("default/next", [("main", 1)])
        kubelet.remove("default/next")
    shutil.rmtree(world.settings["state_dir"])
    async with world.agent() as agent:  # nothing is known of what it was given
        await eventually(agent.ready)
        await world.pod("small", part("main", a))
        with pytest.raises(Rejected, match="pod default/holder holds device"):
            await kubelet.admit("default/small", [("main", 1)])


async def test_the_agent_reports_it_to_the_scheduler_until_kubelet_lets_go(world, kubelet, monkeypatch):
    monkeypatch.setattr(disputes, "TEARDOWN_TIMEOUT_S", 0.3)
    a, *_ = world.uuids
    async with world.agent() as agent:
        await says_it_has_ended(world, agent, kubelet, a)
        found = await eventually(world.disputes)
        assert [(each.key, each.why, each.uuids) for each in found.held] == [
            ("default/holder", HeldReason.ENDED, (a,)),
        ]
        kubelet.remove("default/holder")
        await eventually(lambda: is_silent(world))


async def is_silent(world):
    return await world.disputes() is None


async def test_an_agent_that_was_killed_is_followed_by_one_that_does_not_take_it_back(world, kubelet, monkeypatch):
    monkeypatch.setattr(disputes, "TEARDOWN_TIMEOUT_S", 0.1)
    a, *_ = world.uuids
    async with world.agent() as agent:
        await says_it_has_ended(world, agent, kubelet, a)
        await eventually(world.disputes)
    monkeypatch.setattr(disputes, "TEARDOWN_TIMEOUT_S", 600.0)
    async with world.agent() as agent:
        await eventually(agent.ready)
        gone = {"metadata": {"annotations": {DISPUTES_ANNOTATION: None}}}
        await world.client.patch_merge(NODES, NODE, gone)
        await eventually(world.disputes)  # by itself: what one before it reported, it would not report again


async def test_pods_that_end_as_they_should_cost_no_write_to_their_node(world, kubelet, api, monkeypatch):
    """kubelet lists them for a moment longer. The one write is of a pod whose grant was taken off."""
    monkeypatch.setattr(disputes, "TEARDOWN_TIMEOUT_S", 600.0)
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.published_again()
        with node_writes(api) as written:
            for name, card in zip("pqr", world.uuids, strict=False):
                await world.pod(name, part("main", card))
                await kubelet.admit(f"default/{name}", [("main", 1)])
            await world.set_phase("p", "Succeeded")
            await world.set_phase("q", "Failed")
            gone = {"metadata": {"annotations": dict.fromkeys((GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION))}}
            body = gone | {"status": {"phase": "Running"}}
            await world.client.patch_merge(PODS, "r", body, "default", subresource="status")
            told = await eventually(world.disputes)
        assert [each.pod for each in told.held] == ["r"]
        assert [path for path in written if not path.endswith("/status")] == [f"/api/v1/nodes/{NODE}"]


async def test_the_scheduler_sends_nobody_there_until_the_agent_says_otherwise():
    async with server() as api, replica(api) as replicas:
        holder, after = await replicas.add_pod("holder", 8000), await replicas.add_pod("after", 8000)
        await replicas.add_node("n", memory=8000)
        assert await replicas.bind(holder, "n") == ""
        card = next(iter(replicas.ledger.grant(holder.metadata.uid).uuids))
        ended = {"status": {"phase": "Succeeded"}}
        await replicas.client.patch_merge(PODS, "holder", ended, "default", subresource="status")
        await eventually_true(lambda: replicas.ledger.grant(holder.metadata.uid) is None)
        word = HeldPod("default", "holder", holder.metadata.uid, HeldReason.ENDED, uuids=(card,))
        await tell(replicas, encode(NodeDisputes("n", (word,))))
        await eventually_true(lambda: replicas.cache.disputes.closed("n"))
        (why,) = replicas.cache.disputes.closed("n").values()
        assert why == (
            "pod default/holder still holds the GPU, although the pod has ended or no longer exists according to the "
            "API server"
        )
        assert "GpuHolderUnknown" in await replicas.bind(after, "n")
        await tell(replicas, None)
        await eventually_true(lambda: not replicas.cache.disputes.closed("n"))
        assert await replicas.bind(after, "n") == ""


async def tell(replicas, text):
    await replicas.client.patch_merge(NODES, "n", {"metadata": {"annotations": {DISPUTES_ANNOTATION: text}}})
