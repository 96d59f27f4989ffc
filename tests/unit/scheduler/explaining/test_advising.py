"""What the running scheduler tells pods that wait, against the lab's API server over HTTP; and that the search behind
it offers what `purser why` does."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from tests import tiers
from tests.unit.scheduler.explained import ROOM, cluster
from tests.unit.scheduler.explaining import brute_force
from tests.unit.scheduler.explaining.applied import applied
from tests.unit.scheduler.explaining.drawn import drawn
from tests.unit.scheduler.extender_world import replica, server

from purser.adapters.objects import read_objects
from purser.core.dialects.selectors import USE_GPUTYPE, USE_GPUUUID
from purser.core.names import CORDONED_GPUS_ANNOTATION
from purser.core.placement import Evaluator
from purser.kube.resources import EVENTS, NODES, PODS
from purser.scheduler.explaining import ChangeKind, Explainer, advising
from purser.scheduler.explaining.advising import ADVICE_REFRESH_INTERVAL_S, FIRST_ADVICE_DELAY_S, VERDICT_PERIOD_S
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.explaining.live_judge import LiveJudge
from purser.scheduler.explaining.suggesting import device_request_changes
from purser.scheduler.explaining.trial import PodTrial
from purser.scheduler.placement import Feasibility, Reservations
from purser.scheduler.reasons import SchedulerReason

TOLD = (ChangeKind.AMOUNT, ChangeKind.ANNOTATION)

PODS_DRAWN = (12, 300, 1000)[tiers.TIER]


class StoppedClock:
    """Time passes only where somebody sleeps; notes when verdicts are found."""

    def __init__(self, clock):
        self.now, self._s, self.verdicts, self.costs_s = clock.now, 0.0, [], 0.0

    def monotonic(self):
        return self._s

    async def sleep(self, seconds):
        self._s += seconds
        await asyncio.sleep(0)

    def verdict(self):
        self.verdicts.append(self._s)
        self._s += self.costs_s


@asynccontextmanager
async def stopped(monkeypatch, **options):
    """A replica whose clock stands still."""
    async with server() as api, replica(api, **options) as world:
        world.cache.clock = clock = StoppedClock(world.cache.clock)
        judge = LiveJudge.judge

        def counted(self, pod):
            clock.verdict()
            return judge(self, pod)

        monkeypatch.setattr(LiveJudge, "judge", counted)
        yield world, clock


async def advice(world, name):
    """What was said of a pod, as often as it was."""
    await world.events.drain()
    found = (await world.client.list(EVENTS, "default")).items
    return [
        each.message
        for each in found
        for _ in range(each.count)
        if (each.reason, each.involved_object.name) == (SchedulerReason.FITS_IF_CHANGED, name)
    ]


async def refused(world, pod, *nodes):
    answer = await world.filter(pod, *nodes)
    assert not answer.node_names
    [why] = {*answer.failed_nodes.values(), *answer.failed_and_unresolvable_nodes.values()}
    return why


def suggested(world, pod):
    return dict(world.extender.pending.pods())[pod.metadata.uid].suggestion


async def looked(world, clock, *, after_s=FIRST_ADVICE_DELAY_S):
    await clock.sleep(after_s)
    await world.extender._advisor.look()


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"memory": 9000}, "container c requests nvidia.com/gpumem: 7000 instead of 9000"),
        ({"memory": 3000, "annotations": {USE_GPUTYPE: "T4"}}, f"the pod does not have annotation {USE_GPUTYPE}"),
        (
            {"memory": 6000, "annotations": {USE_GPUUUID: "a-1"}},
            "container c requests nvidia.com/gpumem: 5000 instead of 6000, "
            f"or if the pod does not have annotation {USE_GPUUUID}",
        ),
        (
            {"memory": None, "nvidia.com/gpu": "1"},
            "container c requests nvidia.com/gpumem: 7000 instead of all of its GPUs' memory",
        ),
        ({"memory": 4000, "nvidia.com/gpucores": "90"}, "container c requests nvidia.com/gpucores: 40 instead of 90"),
    ],
)
async def test_a_pod_that_waits_is_told_what_why_says_and_so_is_who_asks_next(monkeypatch, pod, expected):
    async with stopped(monkeypatch) as (world, clock):
        world.extender.attach(world.pods)
        await world.add_node("a", cards=2)
        room = {"status": {"allocatable": {**ROOM, "nvidia.com/gpu": "20"}}}
        await world.client.patch_merge(NODES, "a", room, subresource="status")
        for memory in (3000, 1000):
            holder = await world.add_pod(f"holder-{memory}", memory, **{"nvidia.com/gpucores": "60"})
            assert await world.bind(holder, "a") == ""
        waits = await world.add_pod("waits", **pod)
        why = await refused(world, waits, "a")
        assert "there is room if" not in why
        await looked(world, clock, after_s=FIRST_ADVICE_DELAY_S - 1)
        assert (await advice(world, "waits"), clock.verdicts) == ([], [])
        await looked(world, clock, after_s=1)
        [message] = await advice(world, "waits")
        assert message == f"There is room now if {expected}"
        assert suggested(world, waits) == expected, "for the read API, before kube-scheduler asks again"
        assert await refused(world, waits, "a") == f"{why}; {message.replace('There is room now', 'there is room')}"
        assert suggested(world, waits) == expected
        by_kind = {}
        for each in Explainer(await read_objects(world.client)).explain("default", "waits").suggestions:
            if each.kind in TOLD:
                by_kind.setdefault(each.kind, each.text)
        assert ", or if ".join(by_kind.values()) == expected


async def test_verdicts_are_few_in_a_second_and_a_slow_one_is_followed_by_a_long_rest(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        await world.add_node("a", memory=1500)
        pods = [await world.add_pod(f"p{number}", 2000 + number) for number in range(5)]
        for costs_s in (0.0, 0.2):
            began, clock.verdicts, clock.costs_s = clock.monotonic(), [], costs_s
            for pod in pods:
                await refused(world, pod, "a")
            await looked(world, clock, after_s=ADVICE_REFRESH_INTERVAL_S)
            waited, took = clock.monotonic() - began - ADVICE_REFRESH_INTERVAL_S, costs_s * len(clock.verdicts)
            assert len(clock.verdicts) > 5 * 8
            assert len(clock.verdicts) <= waited / VERDICT_PERIOD_S + 1e-6
            assert took <= waited / 10 + 1e-6


async def test_a_pod_is_looked_at_once_a_minute_and_only_where_it_was_refused_again(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p", 2000)
        await refused(world, pod, "a")
        await looked(world, clock)
        of_one = len(clock.verdicts)
        await looked(world, clock, after_s=10 * ADVICE_REFRESH_INTERVAL_S)
        assert len(clock.verdicts) == of_one, "nobody has asked about it since"
        began = clock.monotonic()
        while clock.monotonic() < began + 5 * ADVICE_REFRESH_INTERVAL_S:
            await refused(world, pod, "a")
            await looked(world, clock, after_s=1)
        assert of_one < len(clock.verdicts) <= 7 * of_one
        assert len(await advice(world, "p")) == 1, "said once"


async def test_what_a_pod_is_told_changes_with_the_cluster(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        world.extender.attach(world.pods)
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p", 2000)
        await refused(world, pod, "a")
        await looked(world, clock)
        assert "nvidia.com/gpumem: 1500 instead" in await refused(world, pod, "a")
        holder = await world.add_pod("holder", 1000)
        assert await world.bind(holder, "a") == ""
        assert "there is room if" not in await refused(world, pod, "a"), "what held before does no longer"
        assert suggested(world, pod) == ""
        await looked(world, clock)
        assert "nvidia.com/gpumem: 500 instead" in await refused(world, pod, "a")
        await world.add_node("b", memory=100)
        assert "there is room if" not in await refused(world, pod, "b"), "kube-scheduler keeps it from node a now"
        assert "there is room if" not in await refused(world, pod, "a")
        await looked(world, clock)
        assert "nvidia.com/gpumem: 500 instead" in await refused(world, pod, "a")
        assert [each.split()[-4] for each in await advice(world, "p")] == ["1500", "500"], "the same is said once"
        full = await world.add_pod("full", 500)
        assert await world.bind(full, "a") == ""
        await refused(world, pod, "a")
        await looked(world, clock, after_s=ADVICE_REFRESH_INTERVAL_S)
        assert "there is room if" not in await refused(world, pod, "a")
        await world.client.delete(PODS, "full", "default", grace_period_seconds=0)
        while world.cache.pod_by_uid(full.metadata.uid) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await refused(world, pod, "a")
        await looked(world, clock, after_s=ADVICE_REFRESH_INTERVAL_S)
        assert len(await advice(world, "p")) == 3, "there was none meanwhile"


async def test_a_pod_that_fits_or_has_gone_is_told_nothing_be_it_while_it_is_looked_at(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        await world.add_node("a", memory=1500)
        names = ("fits", "gone", "leaves", "stays")
        fits, gone, leaves, stays = pods = [await world.add_pod(name, 2000) for name in names]
        for pod in pods:
            await refused(world, pod, "a")
        await world.client.delete(PODS, "gone", "default", grace_period_seconds=0)
        await world.client.patch_merge(PODS, "stays", {"metadata": {"finalizers": ["a.b/c"]}}, "default")
        await world.client.delete(PODS, "stays", "default", grace_period_seconds=0)
        await world.add_node("b")
        assert (await world.filter(fits, "b")).node_names == ["b"]
        verdict = clock.verdict

        def placed():
            verdict()
            if len(clock.verdicts) == 3:
                world.extender._advisor.forget(leaves.metadata.uid)

        clock.verdict = placed
        while world.cache.pod_by_uid(gone.metadata.uid) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        while not world.cache.pod_by_uid(stays.metadata.uid).metadata.deletion_timestamp:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await looked(world, clock)
        assert len(clock.verdicts) == 3
        assert [await advice(world, name) for name in names] == [[], [], [], []]


async def test_a_replica_that_is_not_the_active_one_tells_nobody(monkeypatch):
    active = True
    async with stopped(monkeypatch, may_bind=lambda: active) as (world, clock):
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p", 2000)
        await refused(world, pod, "a")
        active = False
        await looked(world, clock)
        assert clock.verdicts == []
        await world.extender.retry_refused()
        active = True
        await world.extender._gate.wait_until_open()
        await looked(world, clock)
        assert (clock.verdicts, await advice(world, "p")) == ([], []), "another was asked meanwhile"


async def test_a_failure_on_one_pod_leaves_the_others_their_advice(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        await world.add_node("a", memory=1500)
        for name in ("bad", "good"):
            await refused(world, await world.add_pod(name, 2000), "a")
        tried = advising.device_request_changes

        def failing(trial):
            if trial.pod.metadata.name == "bad":
                raise KeyError
            return tried(trial)

        monkeypatch.setattr(advising, "device_request_changes", failing)
        await looked(world, clock)
        assert [len(await advice(world, name)) for name in ("bad", "good")] == [0, 1]


async def test_what_is_tried_is_kept_apart_from_what_is_known_of_pods(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p", 2000)
        await refused(world, pod, "a")
        evaluator, reading = world.extender._evaluator, world.cache.readings.of(pod)
        known = list(evaluator._verdicts.items())
        await looked(world, clock)
        assert len(clock.verdicts) > 5
        assert list(evaluator._verdicts.items()) == known
        assert world.cache.readings.of(pod) is reading


async def test_a_long_reason_leaves_room_for_the_advice(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p", 2000)
        await refused(world, pod, "a")
        await looked(world, clock)
        found = world.extender._advisor.with_advice(pod.metadata.uid, "why " * 1000, ["a"], 1024)
        assert len(found) <= 1024
        assert found.endswith("...; there is room if container c requests nvidia.com/gpumem: 1500 instead of 2000")


async def test_a_suggestion_ends_with_what_it_was_for(monkeypatch):
    async with stopped(monkeypatch) as (world, clock):
        world.extender.attach(world.pods)
        await world.add_node("a", memory=1500)
        pod = await world.add_pod("p", 2000)

        async def advised():
            await refused(world, pod, "a")
            await looked(world, clock, after_s=ADVICE_REFRESH_INTERVAL_S)
            return suggested(world, pod)

        assert await advised() == "container c requests nvidia.com/gpumem: 1500 instead of 2000"
        await world.client.patch_merge(NODES, "a", {"metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: "a-0"}}})
        assert await advised() == "", "nothing that its author could change helps any more"
        await world.client.patch_merge(NODES, "a", {"metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: None}}})
        assert await advised()
        await world.add_node("b", memory=4000)
        assert (await world.filter(pod, "a", "b")).node_names == ["b"]
        assert suggested(world, pod) == "", "it fits"
        assert await advised()
        world.extender.pending.forget_reasons()
        assert suggested(world, pod) == ""


def live(objects):
    """What the running scheduler offers the pod ``p``; None: it waits for something else."""
    known = KnownCluster(cluster(*objects))
    pod = known.pod("default", "p")
    found = known.judge(pod)
    names = [name for name in known.nodes if name not in found.rejections]
    cache, evaluator = known._cache, Evaluator(known.fleet, known.policy).for_trials()
    judge = LiveJudge(cache, evaluator, Feasibility(cache, evaluator, Reservations(cache, evaluator)), names)
    refused = judge.judge(pod)
    if found.fits or found.objection or found.request is None or not names:
        return None
    assert not refused.fits
    return found, list(filter(None, device_request_changes(PodTrial(judge, pod, refused))))


def test_each_change_that_is_told_makes_the_pod_fit_and_where_only_purser_refuses_it_is_that_of_why():
    waiting = seed = same = 0
    while waiting < PODS_DRAWN:
        objects = drawn(random.Random(f"advice {seed}"))
        seed += 1
        answer = live(objects)
        if answer is None:
            continue
        waiting += 1
        refused, offered = answer
        try:
            for each in offered:
                assert set(each.examples) <= set(brute_force.fits(applied(objects, each.kind, each.change))), each
            if not refused.rejections:
                found = Explainer(cluster(*objects)).explain("default", "p").suggestions
                assert offered == [each for each in found if each.kind in TOLD]
                same += bool(offered)
        except BaseException as error:
            error.add_note(f"seed 'advice {seed - 1}'")
            raise
    assert same
