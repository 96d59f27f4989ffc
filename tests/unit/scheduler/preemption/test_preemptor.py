"""Preemption where kube-scheduler's own finds nobody, against the lab's API server over HTTP."""

import msgspec
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.model import GrantState
from purser.kube import ServerError, untyped_resource
from purser.kube.client import Client
from purser.kube.policy_group import budgets_resource
from purser.kube.resources import EVENTS, PODS
from purser.scheduler.cache import nominations
from purser.scheduler.extender_api import ExtenderPreemptionArgs, MetaPod, MetaVictims
from purser.scheduler.preemption import preemptor

PRIORITY_CLASSES = untyped_resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


async def full_node(world, name="n", *pods, memory=3000):
    """A node with a card for three pods of 1000 MiB; the pods, bound."""
    await world.add_node(name, memory=memory)
    for pod in pods:
        assert await world.bind(pod, name) == ""
    await eventually(lambda: all(world.cache.pod_by_uid(pod.metadata.uid).spec.node_name for pod in pods))
    await eventually(lambda: world.cache.budgets.are_known)


async def refuse(world, pod, *nodes):
    assert (await world.filter(pod, *nodes)).node_names == []


async def look(world):
    """As some seconds after kube-scheduler got the victims."""
    world.clock.ahead_s += preemptor.PREEMPTION_DELAY_S
    await world.extender.retry_refused()


async def going(world, *pods):
    """The names of those who were asked to go, as the API server has it."""
    return {pod.metadata.name for pod in pods if (await world.stored(pod)).metadata.deletion_timestamp}


async def asked_to_go(world, *pods):
    await eventually(lambda: all(world.cache.pod_by_uid(p.metadata.uid).metadata.deletion_timestamp for p in pods))


async def events(world, reason):
    await world.events.drain()
    listed = (await world.client.list(EVENTS, "default")).items
    return {(each.involved_object.name, each.message) for each in listed if each.reason == reason}


async def test_the_least_important_that_suffice_are_asked_to_go_and_the_pod_is_nominated(world):
    low, middle, equal = [await world.add_pod(n, priority=p) for n, p in (("low", 1), ("middle", 5), ("equal", 10))]
    await full_node(world, "n", low, middle, equal)
    high = await world.add_pod("high", priority=10)
    await refuse(world, high, "n")
    await world.extender.retry_refused()
    assert not await going(world, low, middle, equal)  # kube-scheduler has the first word
    await look(world)
    assert await going(world, low, middle, equal) == {"low"}
    assert (await world.stored(high)).status.nominated_node_name == "n"
    assert await events(world, "Preempted") == {("low", f"Preempted by pod {high.metadata.uid} on node n")}
    assert await events(world, "Preempting") == {
        ("high", "1 lower-priority pod on node n is being evicted to make room: low")
    }
    raw = await world.client.get(PODS.raw(), "low", "default")
    [target] = [each for each in raw["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert target["reason"] == "PreemptionByScheduler"


async def test_nobody_else_goes_while_some_are_on_their_way_out_whatever_is_asked(world):
    first, second = await world.add_pod("first"), await world.add_pod("second")
    await full_node(world, "n", first, second, memory=2000)
    high = await world.add_pod("high", priority=10)
    await refuse(world, high, "n")
    await look(world)
    gone = await going(world, first, second)
    assert len(gone) == 1
    for _ in range(3):
        await refuse(world, high, "n")
        await look(world)
        proposed = {"n": MetaVictims(tuple(MetaPod(pod.metadata.uid) for pod in (first, second)))}
        answer = await world.extender.preempt(ExtenderPreemptionArgs(high, proposed))
        assert answer.node_name_to_meta_victims == {}
    assert await going(world, first, second) == gone


async def test_what_comes_back_does_not_take_the_room_though_kube_scheduler_forgets_the_nomination(world):
    low = await world.add_pod("low")
    await full_node(world, "n", low, memory=1500)
    high = await world.add_pod("high", priority=10)
    await refuse(world, high, "n")
    await look(world)
    again, more = await world.add_pod("again"), await world.add_pod("more", 500)
    await world.client.delete(PODS, "low", "default", grace_period_seconds=0)
    await eventually(lambda: world.ledger.grant(low.metadata.uid) is None)
    nothing = {"status": {"nominatedNodeName": None}}
    await world.client.patch_merge(PODS, "high", nothing, "default", subresource="status")
    await eventually(lambda: not world.cache.pod_by_uid(high.metadata.uid).status.nominated_node_name)
    assert "is reserved for nominated pods" in (await world.filter(again, "n")).failed_nodes["n"]
    assert "no longer fits on node n" in await world.bind(again, "n")
    assert (await world.filter(more, "n")).node_names == ["n"]  # beside what is kept
    assert await world.bind(more, "n") == ""
    assert (await world.filter(high, "n")).node_names == ["n"]
    assert await world.bind(high, "n") == ""
    assert world.state_of(high) is GrantState.BOUND


async def test_a_nomination_that_nobody_renews_is_over_some_time(world):
    await full_node(world)
    high, low = await world.add_pod("high", 3000, priority=10), await world.add_pod("low", 3000)
    world.cache.nominations.nominate(parse(pod_spec(high)), "n", ())
    await refuse(world, low, "n")
    world.clock.ahead_s += nominations.UNCONFIRMED_NOMINATION_HOLD_S
    assert (await world.filter(low, "n")).node_names == ["n"]


async def test_one_that_outranks_a_nominated_pod_does_not_yield_to_it_and_nominations_outlive_a_restart():
    async with server() as api:
        async with replica(api) as world:
            await world.add_node("n", memory=1000)
            high = await world.add_pod("high", priority=10)
            status = {"status": {"nominatedNodeName": "n"}}
            await world.client.patch_merge(PODS, "high", status, "default", subresource="status")
        async with replica(api) as world:
            await eventually(lambda: world.cache.fleet.node("n") is not None)
            same, higher = await world.add_pod("same", priority=10), await world.add_pod("higher", priority=11)
            await refuse(world, same, "n")
            assert (await world.filter(high, "n")).node_names == ["n"]
            assert (await world.filter(higher, "n")).node_names == ["n"]


async def test_whom_a_budget_protects_is_asked_only_where_nothing_else_helps(world):
    guarded = await world.add_pod("guarded", labels={"app": "guarded"})
    free = await world.add_pod("free", priority=5)
    await full_node(world, "n", guarded, free, memory=2000)
    body = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}}
    await world.client.create(budgets_resource("v1").raw(), body, "default")
    await eventually(lambda: bool(world.cache.budgets.rules))
    await refuse(world, one := await world.add_pod("one", priority=10), "n")
    await look(world)
    assert await going(world, guarded, free) == {"free"}
    await world.client.delete(PODS, "one", "default", grace_period_seconds=0)
    await eventually(lambda: world.cache.pod_by_uid(one.metadata.uid) is None)
    await refuse(world, await world.add_pod("two", 2000, priority=10), "n")
    await look(world)
    assert await going(world, guarded, free) == {"guarded", "free"}


async def test_of_several_nodes_the_cheapest_is_answered_be_it_one_that_kube_scheduler_does_not_know_of(world):
    costly, cheap = await world.add_pod("costly", priority=5), await world.add_pod("cheap", priority=1)
    await full_node(world, "a", costly, memory=1000)
    await full_node(world, "b", cheap, memory=1000)
    high = await world.add_pod("high", priority=10)
    await refuse(world, high, "b")  # a is refused by kube-scheduler's own filters
    proposed = {"a": MetaVictims((MetaPod(costly.metadata.uid),))}
    answer = await world.extender.preempt(ExtenderPreemptionArgs(high, proposed))
    assert answer.node_name_to_meta_victims == {"b": MetaVictims((MetaPod(cheap.metadata.uid),))}
    await look(world)
    assert not await going(world, costly, cheap)  # kube-scheduler asks them


async def test_kube_schedulers_question_may_be_the_first_that_is_heard_of_a_pod(world, monkeypatch):
    """Where its count of what nodes list refuses the pod; without a node it would not ask again for minutes."""
    low = await world.add_pod("low", priority=1)
    await full_node(world, "n", low, memory=1000)
    high = await world.add_pod("high", priority=10)
    known, asked = world.cache.pod_by_uid, []

    def late(uid):
        asked.append(uid)
        return None if asked.count(high.metadata.uid) < 5 else known(uid)

    monkeypatch.setattr(world.cache, "pod_by_uid", late)
    proposed = {"n": MetaVictims((MetaPod(low.metadata.uid),))}
    answer = await world.extender.preempt(ExtenderPreemptionArgs(high, proposed))
    assert answer.node_name_to_meta_victims == proposed
    gone = msgspec.structs.replace(high, metadata=msgspec.structs.replace(high.metadata, uid="gone"))
    assert (await world.extender.preempt(ExtenderPreemptionArgs(gone, proposed))).node_name_to_meta_victims == {}


async def test_a_node_without_a_victim_is_never_answered(world):
    """kube-scheduler 1.20 proposes such nodes, and crashes on two of them in an answer."""
    low = await world.add_pod("low")
    await full_node(world, "n", low)
    high = await world.add_pod("high", priority=10)  # there is room for it by now
    answer = await world.extender.preempt(ExtenderPreemptionArgs(high, {"n": MetaVictims(())}))
    assert answer.node_name_to_meta_victims == {}


async def test_a_pod_gets_one_event_that_no_eviction_would_help_it(world):
    """What kube-scheduler knows as well it tells itself."""
    low, equal = await world.add_pod("low", priority=1), await world.add_pod("equal", 2000, priority=10)
    await full_node(world, "n", low, equal)
    for name, memory, priority in (("as-low", 1000, 1), ("large", 9000, 10), ("high", 3000, 10)):
        pod = await world.add_pod(name, memory, priority=priority)
        for _ in range(2):
            await refuse(world, pod, "n")
            await look(world)
    why = "preemption: 0/1 nodes are available: 1 would not take the pod even if all lower-priority pods were evicted."
    assert await events(world, "PreemptionNotEnough") == {("high", why)}
    assert not await going(world, low, equal)


async def test_a_pod_that_may_not_preempt_preempts_nobody(world):
    low = await world.add_pod("low")
    await full_node(world, "n", low, memory=1000)
    await world.client.create(
        PRIORITY_CLASSES, {"metadata": {"name": "priority-7"}, "value": 7, "preemptionPolicy": "Never"}
    )
    await refuse(world, await world.add_pod("polite", priority=7), "n")
    await look(world)
    assert not await going(world, low)


async def test_the_priority_that_counts_is_the_pods_own_whatever_the_question_says(world):
    low = await world.add_pod("low")
    await full_node(world, "n", low, memory=1000)
    modest = await world.add_pod("modest")
    loud = msgspec.structs.replace(modest, spec=msgspec.structs.replace(modest.spec, priority=2_000_000_000))
    await refuse(world, loud, "n")
    answer = await world.extender.preempt(
        ExtenderPreemptionArgs(loud, {"n": MetaVictims((MetaPod(low.metadata.uid),))})
    )
    assert answer.node_name_to_meta_victims == {}
    await refuse(world, loud, "n")
    await look(world)
    assert not await going(world, low)


async def test_of_many_the_most_important_are_seen_to_first(monkeypatch):
    monkeypatch.setattr(preemptor, "MAX_SEARCHES_PER_LOOK", 1)
    async with server() as api, replica(api) as world:
        lows = [await world.add_pod(f"low-{number}") for number in range(2)]
        await full_node(world, "n", *lows, memory=2000)
        pods = [await world.add_pod(name, priority=priority) for name, priority in (("high", 5), ("higher", 6))]
        for pod in pods:
            await refuse(world, pod, "n")
        nominated = []
        for _ in pods:
            await look(world)
            nominated.append([(await world.stored(pod)).status.nominated_node_name for pod in pods])
        assert nominated == [["", "n"], ["n", "n"]]
        assert await going(world, *lows) == {"low-0", "low-1"}


class Failing(Client):
    """Deletes nothing, or writes no nomination, as long as it is set to."""

    deletes = True
    writes = True

    async def delete(self, *args, **options):
        if not self.deletes:
            raise ServerError(500, "InternalError", "no")
        await super().delete(*args, **options)

    async def patch_merge(self, resource, name, patch, namespace=None, **options):
        if not self.writes:
            raise ServerError(500, "InternalError", "no")
        return await super().patch_merge(resource, name, patch, namespace, **options)


async def test_what_the_api_server_did_not_take_is_done_again_and_nobody_goes_without_a_nomination():
    async with server() as api, replica(api, Failing) as world:
        low = await world.add_pod("low")
        await full_node(world, "n", low, memory=1000)
        high = await world.add_pod("high", priority=10)
        await refuse(world, high, "n")
        world.client.writes = False
        await look(world)
        assert not await going(world, low) and not world.cache.nominations
        world.client.writes, world.client.deletes = True, False
        await look(world)
        assert not await going(world, low)
        world.client.deletes = True
        await look(world)
        assert await going(world, low) == {"low"}
        await asked_to_go(world, low)


async def test_a_pod_that_is_stuck_on_its_way_out_is_not_waited_for(world):
    stuck, other = await world.add_pod("stuck"), await world.add_pod("other")
    await full_node(world, "n", stuck, other, memory=2000)
    await world.client.delete(PODS, "stuck", "default")
    await asked_to_go(world, stuck)
    high = await world.add_pod("high", priority=10)
    await refuse(world, high, "n")
    await look(world)
    assert await going(world, other) == set()  # the one that leaves makes room enough
    world.clock.ahead_s += 30 + nominations.OVERDUE_TERMINATION_S
    await refuse(world, high, "n")
    await look(world)
    assert await going(world, other) == {"other"}


async def test_a_question_about_a_pod_that_is_gone_is_answered_at_once(monkeypatch):
    monkeypatch.setattr(preemptor, "WATCH_LAG_TIMEOUT_S", 3600.0)
    async with server() as api, replica(api) as world:
        low = await world.add_pod("low", priority=1)
        await full_node(world, "n", low, memory=1000)
        high = await world.add_pod("high", priority=10)
        await world.client.delete(PODS, "high", "default", grace_period_seconds=0)
        await eventually(lambda: world.cache.pod_by_uid(high.metadata.uid) is None)
        proposed = {"n": MetaVictims((MetaPod(low.metadata.uid),), 0)}
        found = await world.extender.preempt(ExtenderPreemptionArgs(high, node_name_to_meta_victims=proposed))
        assert not found.node_name_to_meta_victims
