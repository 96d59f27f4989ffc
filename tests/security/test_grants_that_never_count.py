"""Whoever may create a pod may write a grant on it. kubelet admits one pod at a time, and none of these holds it up."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from purser.agent.allocation.resolver import WaitingBudget
from purser.core.dialects import hami
from purser.core.grant.signing import sign
from purser.core.model import Grant
from purser.core.names import AWAITS_GRANT_ANNOTATION, GRANT_ANNOTATION
from tests.unit.agent import conftest
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually
from tests.unit.agent.emulated_kubelet import Rejected

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

# What an agent runs in, for these tests as well.
api, client, folder, driver = conftest.api, conftest.client, conftest.folder, conftest.driver
kubelet, world, short_waits = conftest.kubelet, conftest.world, conftest.short_waits

PATIENCE_S = 6000
"""Longer than a test may take."""


def _written(world, kind):
    grant = Grant("another-uid", "default", "p", NODE, (part("main", world.uuids[0]),))
    return {
        "unreadable": {GRANT_ANNOTATION: "x"},
        "of another pod": sign(grant, world.key),
        "signed by nobody": sign(grant, Ed25519PrivateKey.generate()),
        "HAMi's, on a node that HAMi does not know": {hami.VGPU_NODE: NODE, hami.BIND_PHASE: hami.ALLOCATING},
    }[kind]


KINDS = ("unreadable", "of another pod", "signed by nobody", "HAMi's, on a node that HAMi does not know")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_grant_that_does_not_count_in_a_fresh_read_is_refused_at_once(world, kubelet, api, kind):
    asked = []

    async def note(request):
        if request.path.endswith(("/pods/p", "/configmaps")) and request.method == "GET":
            asked.append(request.path)

    async with world.agent(resolve_timeout_s=PATIENCE_S) as agent:
        await eventually(agent.ready)
        await world.pod("p", counts={"main": 1}, annotations=_written(world, kind))
        api.intercept(note)
        try:
            with pytest.raises(Rejected, match=r"has no (valid )?grant from Purser"):
                await kubelet.admit("default/p", [("main", 1)])
                await kubelet.pre_start(kubelet.pods["default/p"]["main"])  # what has no grant at all is admitted
        finally:
            api.intercept(None)
        assert len(asked) <= 4, asked


async def test_one_of_an_unknown_key_costs_one_list_of_the_keys(world, kubelet, api):
    lists = []

    async def note(request):
        if "configmaps" in request.path and "watch" not in request.query:
            lists.append(request.path)

    async with world.agent(resolve_timeout_s=PATIENCE_S) as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", world.uuids[0]), key=Ed25519PrivateKey.generate())
        api.intercept(note)
        try:
            for _ in range(3):
                with pytest.raises(Rejected, match="not signed with any of the scheduler's keys"):
                    await kubelet.admit("default/p", [("main", 1)])
        finally:
            api.intercept(None)
        assert len(lists) == 1


async def test_pods_that_claim_to_await_a_grant_share_one_budget(world, kubelet):
    async with world.agent(resolve_timeout_s=0.2) as agent:
        await eventually(agent.ready)
        counts = []
        for number in range(8):
            name, before = f"p{number}", kubelet.lists
            await world.pod(name, counts={"main": 1}, annotations={AWAITS_GRANT_ANNOTATION: "true"})
            with pytest.raises(Rejected, match="has no grant"):
                await kubelet.admit(f"default/{name}", [("main", 1)])
            kubelet.remove(f"default/{name}")
            counts.append(kubelet.lists - before)
        assert counts[0] > 2 >= counts[-1]


async def test_a_minute_has_so_much_waiting_and_no_more():
    budget = WaitingBudget(1.0)
    assert [budget.spend(0.5, now) for now in (0.0, 1.0, 2.0, 59.0)] == [True, True, False, False]
    assert [budget.spend(0.5, now) for now in (60.0, 60.5, 61.0)] == [True, False, True]
