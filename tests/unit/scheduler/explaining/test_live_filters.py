"""What the running scheduler knows of kube-scheduler's filters is what `purser why` finds with all objects of a
cluster; and its answer on a pod that kube-scheduler never asked about leaves out the nodes that these reject."""

import random

import msgspec
from tests import tiers
from tests.unit.scheduler.explained import cluster
from tests.unit.scheduler.explaining.drawn import drawn
from tests.unit.scheduler.extender_world import replica, server

from purser.core.explaining.filters import PODS as NUMBER_OF_PODS
from purser.core.explaining.grouping import KUBE_SCHEDULER, PURSER
from purser.core.explaining.reasons import FilterReason
from purser.kube.resources import NODES
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.explaining.live_filters import LiveFilters

CLUSTERS_DRAWN = (40, 1000, 4000)[tiers.TIER]
KNOWN = (FilterReason.UNSCHEDULABLE, FilterReason.TAINT, FilterReason.SELECTOR, FilterReason.AFFINITY)


def test_of_each_node_it_finds_what_all_objects_say_but_for_what_only_kube_scheduler_knows():
    found = further = 0
    for seed in range(CLUSTERS_DRAWN):
        known = KnownCluster(cluster(*drawn(random.Random(f"filters {seed}"))))
        pod = known.pod("default", "p")
        if pod.spec.scheduling_gates:
            continue
        verdict = known.judge(pod)
        theirs = verdict.rejections
        live = LiveFilters(known._cache, list(known.nodes))
        own = live.rejections(pod)
        alike = {name for name, each in own.items() if name in theirs and _kind(each) == _kind(theirs[name])}
        later = _without_amounts(live.later_rejections(pod, alike), alike)
        assert later == _without_amounts(known.judge_further(pod, verdict).later_rejections, alike), seed
        further += len(later)
        for name in known.nodes:
            mine, all_of_it = own.get(name), theirs.get(name)
            note = (seed, name, mine, all_of_it)
            if all_of_it is None:
                assert mine is None, note
            elif _is_known_live(all_of_it):
                free = 0 if mine is None else abs(mine.free - all_of_it.free)
                assert mine is not None and msgspec.structs.replace(mine, free=all_of_it.free) == all_of_it, note
                assert free < 1 << 20, note
                found += 1
    assert found > CLUSTERS_DRAWN / 4 and further > CLUSTERS_DRAWN / 20


def _is_known_live(rejection):
    return rejection.reason in KNOWN or rejection.about in ("cpu", "memory", NUMBER_OF_PODS)


def _kind(rejection):
    return rejection.reason, rejection.about


def _without_amounts(rejections, names):
    """Those of some nodes that the running scheduler knows, by kind."""
    return {(name, _kind(each)) for name, each in rejections if name in names and _is_known_live(each)}


async def test_nodes_that_kube_scheduler_keeps_from_a_pod_are_not_among_those_that_it_fits():
    async with server() as api, replica(api) as world:
        for name in ("n1", "n2", "n3", "n4"):
            await world.add_node(name)
        away = {"taints": [{"key": "team", "value": "bravo", "effect": "NoSchedule"}]}
        await world.client.patch_merge(NODES, "n1", {"spec": away})
        await world.client.patch_merge(NODES, "n2", {"spec": {"unschedulable": True}})
        status = {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}}
        await world.client.patch_merge(NODES, "n3", {"status": status}, subresource="status")
        version = (await world.client.get(NODES, "n3")).metadata.resource_version
        while world.nodes.store["n3"].metadata.resource_version != version:
            await world.clock.sleep(0.01)
        pod = await world.add_pod("waits", 9000, cpu="4")
        found = await world.extender.searches.search(pod, names_taints=True)
        assert found.fits == ()
        assert {(each.by, each.reason, each.examples) for each in found.reasons} == {
            (KUBE_SCHEDULER, "TaintToleration", ("n1",)),
            (KUBE_SCHEDULER, "NodeUnschedulable", ("n2",)),
            (KUBE_SCHEDULER, "NodeResourcesFit", ("n3",)),
            (PURSER, "CardInsufficientMemory", ("n4",)),
        }
        assert {(each.by, each.reason, each.nodes, each.examples) for each in found.further_reasons} == {
            (PURSER, "CardInsufficientMemory", 3, ("n1", "n2", "n3"))
        }
        [change] = found.suggestions
        assert change.examples == ("n4",)
        told = {each.reason: each.text for each in found.reasons}
        assert told["TaintToleration"] == "1 node has taint team=bravo:NoSchedule, which the pod does not tolerate"
        assert told["NodeResourcesFit"] == "1 node has fewer than 4 CPUs free (most: 2)"
        for_a_namespace = await world.extender.searches.search(pod, names_taints=False)
        assert for_a_namespace.further_reasons == found.further_reasons
        assert "bravo" not in str(for_a_namespace), "others' names may be in a taint"
        await world.client.patch_merge(NODES, "n4", {"spec": {"unschedulable": True}})
        while not world.nodes.store["n4"].spec.unschedulable:
            await world.clock.sleep(0.01)
        closed = await world.extender.searches.search(pod, names_taints=True)
        assert (closed.fits, closed.suggestions) == ((), ())
