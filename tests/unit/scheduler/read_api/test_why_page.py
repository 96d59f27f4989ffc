"""The document on why one pod waits, against the lab's API server over HTTP; and that it names no other namespace."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kube.servers import StandingClock
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.dialects.selectors import USE_GPUTYPE
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, GrantState, NodeInventory
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import Evaluator
from purser.core.state import PodWhy, WhyReason, WhyState
from purser.kube.pod_details import SCHEDULED_PODS, ScheduledPod
from purser.kube.resources import PODS
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining import NoTurnError, PodSearch, SearchedPod, asking
from purser.scheduler.explaining.live_judge import LiveJudge
from purser.scheduler.placement import Reservations
from purser.scheduler.read_api import SharedReads, WhyPage
from purser.scheduler.read_api.page import Scope

NAMESPACES = ("alpha", "bravo", "crane")
"""A word of these in another's document is a leak."""
EVERYTHING, OWN = Scope("default", True), Scope("default", False)


def page_of(world, *, places_pods=True):
    """Without answers from before."""
    extender = world.extender
    reads = SharedReads(world.clock)
    return WhyPage(world.client, world.cache, extender.pending, extender.searches.search, lambda: places_pods, reads)


async def why(world, name, scope=EVERYTHING, **options):
    found = await page_of(world, **options).of(name, scope, "jane")
    return None if found is None else msgspec.json.decode(b"".join(found.pieces), type=PodWhy)


async def test_of_a_pod_that_waits_it_has_what_refuses_it_and_what_would_make_it_fit(world):
    world.extender.attach(world.pods)
    for name in ("n1", "n2", "n3"):
        await world.add_node(name, cards=2)
    waits = await world.add_pod("waits", 9000, annotations={USE_GPUTYPE: "A100"})
    answer = await world.filter(waits, "n1", "n2")
    said = "0/3 nodes are available: 1 node(s) had untolerated taint."
    condition = {"type": "PodScheduled", "status": "False", "message": said}
    await world.client.patch_merge(
        PODS, "waits", {"status": {"conditions": [condition]}}, "default", subresource="status"
    )
    found = await why(world, "waits")
    assert (found.state, found.node, found.nodes, found.fits, found.objection) == (WhyState.WAITING, "", 2, 0, "")
    text = "4 GPUs on 2 nodes are too small for 9000 MiB (largest: 8000 MiB)"
    assert found.reasons == (WhyReason("Purser", "CardInsufficientMemory", 2, 4, text, ("n1", "n2")),)
    [change] = found.suggestions
    assert (change.kind, change.fits, change.examples) == ("amount", 2, ("n1", "n2")), "of the nodes that were asked"
    assert change.text == "container c requests nvidia.com/gpumem: 8000 instead of 9000"
    assert ({found.message}, found.last_message) == (set(answer.failed_nodes.values()), said)
    assert (found.ended_early, found.notes) == (False, ())

    without_names = await why(world, "waits", OWN)
    assert {each.examples for each in (*without_names.reasons, *without_names.suggestions)} == {()}
    bare = msgspec.structs.replace(found.reasons[0], examples=())
    assert without_names.reasons == (bare,), "all else is the same"
    assert (await why(world, "waits", places_pods=False)).notes, "this replica does not know what it was told"

    await world.add_pod("new", 9000)
    assert (await why(world, "new")).nodes == 3, "kube-scheduler has not asked about it: all nodes with GPUs"
    await world.add_pod("small", 1000)
    small = await why(world, "small")
    assert (small.fits, small.reasons, small.suggestions) == (3, (), ())


async def test_pods_that_no_decision_is_asked_of(world):
    world.extender.attach(world.pods)
    await world.add_node("n1")
    assert await why(world, "unknown") is None
    await world.add_pod("cpu", None)
    assert await why(world, "cpu") is None, "who may read the state may know of no others"
    await world.add_pod("theirs", spec={"schedulerName": "volcano"})
    said = {"type": "PodScheduled", "status": "False", "message": "pod group is not ready"}
    await world.client.patch_merge(PODS, "theirs", {"status": {"conditions": [said]}}, "default", subresource="status")
    found = await why(world, "theirs")
    assert (found.scheduler, found.state, found.last_message) == ("volcano", "waiting", "pod group is not ready")
    assert 'for scheduler "volcano"' in found.objection
    await world.add_pod("gated", spec={"schedulingGates": [{"name": "example.com/quota"}]})
    assert (await why(world, "gated")).objection == "its scheduling gates have not been removed: example.com/quota"
    await world.add_pod("odd", "16Gi")
    assert "16Gi" in (await why(world, "odd")).objection
    held = await world.add_pod("held")
    assert await world.bind(held, "n1") == ""
    found = await why(world, "held")
    assert (found.state, found.node, found.reasons) == ("placed", "n1", ())
    ended = {"status": {"phase": "Failed", "reason": "Evicted", "message": "too much\nmemory"}}
    await world.client.patch_merge(PODS, "held", ended, "default", subresource="status")
    found = await why(world, "held")
    assert (found.state, found.objection) == ("ended", "Evicted: too much memory")


async def test_a_name_that_another_pod_has_by_now_is_not_answered(world):
    first = await world.add_pod("p")
    page, known = page_of(world), world.cache.pod("default", "p")
    await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
    world.cache.pod = lambda *_: known  # the watch is late
    assert await page.of("p", EVERYTHING, "jane") is None
    second = await world.add_pod("p", wait=False)
    assert second.metadata.uid != first.metadata.uid
    world.clock.ahead_s += 60
    assert await page.of("p", EVERYTHING, "jane") is None


class SlowClock(StandingClock):
    """Time passes where verdicts are made, and where somebody sleeps."""

    async def sleep(self, seconds):
        self.ahead_s += seconds
        await asyncio.sleep(0)


@asynccontextmanager
async def slow(monkeypatch, verdict_s):
    """A replica to which a verdict takes so long; the pod ``waits`` fits nowhere."""
    async with server() as api, replica(api) as world:
        await world.add_node("n1")
        await world.add_pod("waits", 9000, **{"nvidia.com/gpucores": "50"})
        world.cache.clock = clock = SlowClock()
        judge, verdicts = LiveJudge.judge, []

        def timed(self, pod):
            verdicts.append(clock.ahead_s)
            clock.ahead_s += verdict_s
            return judge(self, pod)

        monkeypatch.setattr(LiveJudge, "judge", timed)
        yield world, verdicts


async def test_a_search_that_takes_long_ends_with_what_it_has_and_says_so(monkeypatch):
    async with slow(monkeypatch, 0.6) as (world, verdicts):
        found = await why(world, "waits")
        assert found.ended_early
        assert [each.reason for each in found.reasons] == ["CardInsufficientMemory"]
        assert len(verdicts) == 3, "with the rests after them, each takes 0.9 s"
    async with slow(monkeypatch, asking.SEARCH_TIMEOUT_S / 100) as (world, verdicts):
        found = await why(world, "waits")
        assert (found.ended_early, len(found.suggestions)) == (False, 1)
        assert len(verdicts) > 2


async def test_who_waits_longer_than_a_search_may_take_gets_none(monkeypatch):
    async with slow(monkeypatch, 0.6) as (world, verdicts):
        search, clock = world.extender.searches.search, world.cache.clock
        waiting = await world.client.get(SCHEDULED_PODS, "waits", "default")
        first, *others = await asyncio.gather(*(search(waiting) for _ in range(4)), return_exceptions=True)
        assert (first.is_cut_short, len(verdicts)) == (True, 3)
        assert [type(each) for each in others] == [NoTurnError] * 3
        pause = 2 * clock.ahead_s
        assert [each.wait_s for each in others] == [pytest.approx(pause)] * 3
        clock.ahead_s += pause - asking.SEARCH_TIMEOUT_S
        with pytest.raises(NoTurnError):
            await search(waiting)
        clock.ahead_s += 0.1
        assert (await search(waiting)).is_cut_short
        assert verdicts[3] >= 1.5 * pause, "after the first search and the whole pause"


@pytest.mark.gate
@pytest.mark.parametrize("verdict_s", [0.002, 0.05, 0.6, 1.9])
async def test_however_many_ask_three_fourths_of_the_time_are_for_others(monkeypatch, verdict_s):
    async with slow(monkeypatch, verdict_s) as (world, verdicts):
        search, clock = world.extender.searches.search, world.cache.clock
        waiting = await world.client.get(SCHEDULED_PODS, "waits", "default")
        searched = 0
        while clock.ahead_s < 60:
            found = await asyncio.gather(*(search(waiting) for _ in range(8)), return_exceptions=True)
            searched += sum(isinstance(each, SearchedPod) for each in found)
            assert all(isinstance(each, SearchedPod | NoTurnError) for each in found)
            clock.ahead_s += 0.1
        assert searched >= 4
        last_search_s = asking.SEARCH_TIMEOUT_S + verdict_s
        assert len(verdicts) * verdict_s <= clock.ahead_s / 4 + last_search_s


async def test_searches_follow_one_another_and_what_is_asked_meanwhile_goes_first(monkeypatch):
    async with slow(monkeypatch, 0.001) as (world, verdicts):
        running, most = 0, 0
        inner = PodSearch._search

        async def counted(self, pod, deadline, **options):
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await inner(self, pod, deadline, **options)
            finally:
                running -= 1

        monkeypatch.setattr(PodSearch, "_search", counted)
        many = asyncio.gather(*(why(world, "waits") for _ in range(4)))
        turns = 0
        while not many.done():
            turns += 1
            await asyncio.sleep(0)
        assert [each.suggestions for each in await many] == [(await why(world, "waits")).suggestions] * 4
        assert (most, turns > len(verdicts)) == (1, True)


async def test_one_search_after_another_leaves_most_of_the_time_to_others(monkeypatch):
    async with slow(monkeypatch, 0.01) as (world, verdicts):
        begins = []
        for _ in range(3):
            before = len(verdicts)
            assert not (await why(world, "waits")).ended_early
            begins.append(verdicts[before])
        of_each = len(verdicts) / 3
        for begin, following in pairwise(begins):
            assert following - begin >= 3 * of_each * 0.01 * 1.4, "verdicts, the rests between them, and the pause"


async def test_it_is_found_once_for_all_who_ask_and_not_more_often_than_the_api_server_is_asked(world):
    await world.add_node("n1")
    await world.add_pod("waits", 9000)
    world.clock.monotonic = lambda: 0.0
    page = page_of(world)
    first, second = await asyncio.gather(*(page.of("waits", EVERYTHING, user) for user in ("jane", "joe")))
    assert first is second
    assert await page.of("waits", OWN, "jane") is not first, "who may not list nodes has a document of their own"


async def test_it_goes_on_while_one_of_those_who_asked_is_there(world):
    await world.add_node("n1")
    await world.add_pod("waits", 9000)
    page, turn = page_of(world), world.extender.searches._one_by_one
    await turn.acquire()

    def queued():
        return len([each for each in turn._waiters or () if not each.done()])

    def ask():
        return asyncio.ensure_future(page.of("waits", EVERYTHING, "jane"))

    first, second = ask(), ask()
    await eventually(lambda: queued() == 1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (queued(), second.done()) == (1, False)
    second.cancel()
    await eventually(lambda: queued() == 0)
    third = ask()
    await eventually(lambda: queued() == 1)
    turn.release()
    assert (await third).pieces


def pod(namespace, memory):
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": namespace, "uid": f"{namespace}-p"},
            "spec": {"schedulerName": SCHEDULER_NAME, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        },
        ScheduledPod,
    )


_namespace = st.sampled_from(NAMESPACES)
_taken = st.tuples(_namespace, st.integers(0, 3), st.integers(100, 8000))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(deadline=None)
@given(st.integers(1, 4), st.lists(_taken, max_size=6), st.lists(_taken, max_size=4), st.integers(1, 9000), _namespace)
async def test_no_document_names_another_namespace_or_its_pods(nodes, held, disputes, memory, namespace):
    cache = ClusterCache(None)
    for number in range(nodes):
        cache.fleet.set_inventory(NodeInventory(f"node-{number}", (Device(f"gpu-{number}", 0, "A100", 8000, slots=2),)))
    for count, (whose, node, amount) in enumerate(held):
        part = ContainerGrant(f"{whose}-c", ContainerKind.APP, (DeviceShare(f"gpu-{node % nodes}", amount, 0),))
        grant = Grant(f"{whose}-{count}", whose, f"{whose}-held", f"node-{node % nodes}", (part,))
        cache.fleet.ledger.adopt(grant, GrantState.BOUND)
    for whose, node, _ in disputes:
        cache.fleet.set_disputes(f"node-{node % nodes}", {f"gpu-{node % nodes}": f"pod {whose}/{whose}-odd holds it"})
    asked = pod(namespace, memory)
    cache.pod = lambda *_: asked
    evaluator = Evaluator(cache.fleet)
    search = PodSearch(cache, evaluator, Reservations(cache, evaluator), lambda uid: None)

    async def get(resource, *_):
        assert resource is SCHEDULED_PODS
        return asked

    client, pending = SimpleNamespace(get=get), SimpleNamespace(message=lambda uid: "")
    page = WhyPage(client, cache, pending, search.search, lambda: False, SharedReads(cache.clock))
    for has_all_nodes in (True, False):
        document = await page.of("p", Scope(namespace, has_all_nodes), "jane")
        text = b"".join(document.pieces)
        for other in NAMESPACES:
            assert other == namespace or other.encode() not in text
        assert has_all_nodes or b"node-" not in text
        found = msgspec.json.decode(text, type=PodWhy)
        assert msgspec.json.encode(found) == text
        assert found.fits or found.reasons
