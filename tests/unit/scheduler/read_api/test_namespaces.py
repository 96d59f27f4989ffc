"""The state documents of namespaces: who reads one learns nothing of another, but how much of a GPU is taken."""

from types import SimpleNamespace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kube.servers import StandingClock

from purser.adapters.quotas import Quotas
from purser.core.fleet import Fleet
from purser.core.kubernetes.times import spelled
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceShare,
    Grant,
    GrantState,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Reason, Refusal, explain
from purser.core.placement.reasons import dispute_detail
from purser.core.state import ClusterState, StateAsk, StateQuota, StateReplica
from purser.kube.objects import ObjectMeta, Pod, PodStatus
from purser.kube.resource_quotas import ResourceQuota, ResourceQuotaSpec
from purser.scheduler.pending import PendingPod
from purser.scheduler.read_api.documents import MIN_DOCUMENT_AGE_S
from purser.scheduler.read_api.page import Scope, StatePage
from purser.web.waits import waits_of_pod

NAMESPACES = ("alpha", "bravo", "crane")
"""A word of these, or a pod's name or uid, which begins with it, in another's document is a leak."""

WAITED_S = {"alpha": 7, "bravo": 700, "crane": 70_000}
"""How long each pod of a namespace waited before it got what it holds."""
ASKED = StateAsk("nvidia.com/gpu", False, 100)


def cluster(nodes, held, waiting, disputes, limited=()):
    """``held`` and ``waiting``: a namespace each, ``held`` with the numbers of a node and its GPU. ``disputes``: a GPU
    and the namespace of a pod that its reason names. ``limited``: namespaces, with a quota for each time that one is
    named."""
    fleet, pending, pods = Fleet(), {}, {}
    for number, gpus in enumerate(nodes):
        devices = tuple(Device(f"gpu-{number}-{i}", i, "NVIDIA A100", 8000, slots=10) for i in range(gpus))
        fleet.set_inventory(NodeInventory(f"node-{number}", devices))
    for count, (namespace, node, gpu) in enumerate(held):
        node, gpu = node % len(nodes), gpu % nodes[node % len(nodes)]
        share = DeviceShare(f"gpu-{node}-{gpu}", 100, 10)
        part = ContainerGrant(f"{namespace}-container", ContainerKind.APP, (share,))
        name = f"{namespace}-held-{count}"
        created = spelled(count * 100_000)
        started = spelled(count * 100_000 + WAITED_S[namespace])
        pods[f"{name}-uid"] = Pod(ObjectMeta(creation_timestamp=created), status=PodStatus(start_time=started))
        fleet.ledger.adopt(Grant(f"{name}-uid", namespace, name, f"node-{node}", (part,)), GrantState.BOUND)
    for count, namespace in enumerate(waiting):
        name = f"{namespace}-waits-{count}"
        why = dispute_detail("gpu-0-0", f"pod {NAMESPACES[count % 3]}/{NAMESPACES[count % 3]}-odd holds it")
        refusal = Refusal(((Reason.DISPUTED, 1),), devices=1, dispute=why)
        told = explain({"node-0": refusal}, PodRequest("uid", namespace, name, ()), fleet)
        words = ((str(Reason.DISPUTED), 1),)
        pending[f"{name}-uid"] = PendingPod(
            namespace, name, "", 0, "", 1, words, told, f"{namespace} asks for less", asks=ASKED
        )
    for namespace, node, gpu in disputes:
        node, gpu = node % len(nodes), gpu % nodes[node % len(nodes)]
        before = fleet.disputes(f"node-{node}")
        fleet.set_disputes(f"node-{node}", {**before, f"gpu-{node}-{gpu}": f"pod {namespace}/{namespace}-odd holds it"})
    quotas = Quotas()
    for number, namespace in enumerate(limited):
        hard = {"limits.nvidia.com/gpumem": number * 100, "limits.hygon.com/dcumem": "1"}
        meta = ObjectMeta(name=f"{namespace}-quota-{number}", namespace=namespace)
        quotas.put(ResourceQuota(meta, ResourceQuotaSpec(hard)))
    cache = SimpleNamespace(
        fleet=fleet,
        node=lambda name: None,
        pod_by_uid=pods.get,
        scheduler_name="purser-scheduler",
        limited_namespaces=quotas.namespaces,
        state_quotas=lambda namespace: quotas.documents(
            namespace, lambda family: fleet.ledger.namespace_usage(namespace, family)
        ),
    )
    return cache, SimpleNamespace(pods=lambda: iter(list(pending.items())))


def body(document):
    return b"".join(document.pieces)


def decoded(document):
    return msgspec.json.decode(body(document), type=ClusterState)


_namespace, _number = st.sampled_from(NAMESPACES), st.integers(0, 5)
_places = st.lists(st.tuples(_namespace, _number, _number), max_size=8)


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    _places,
    st.lists(_namespace, max_size=6),
    _places,
    st.lists(_namespace, max_size=4),
)
async def test_no_document_names_another_namespace_or_its_pods(nodes, held, waiting, disputes, limited):
    cache, pending = cluster(nodes, held, waiting, disputes, limited)
    replica = StateReplica("bravo-scheduler-pod", True, "bravo-scheduler-pod")
    page = StatePage(cache, pending, lambda: replica, StandingClock())
    whole = decoded(await page.current())
    assert (len(whole.grants), len(whole.waiting), len(whole.quotas)) == (len(held), len(waiting), 2 * len(limited))
    for namespace in (*NAMESPACES, "empty"):
        for has_all_nodes in (True, False):
            document = await page.current(Scope(namespace, has_all_nodes))
            state = decoded(document)
            assert msgspec.json.encode(state) == body(document), "the types say otherwise, or in another order"
            for other in NAMESPACES:
                assert other == namespace or other.encode() not in body(document)
            assert state.grants == tuple(each for each in whole.grants if each.namespace == namespace)
            assert [each.uid for each in state.waiting] == [
                each.uid for each in whole.waiting if each.namespace == namespace
            ]
            assert all(each.message for each in state.waiting)
            of_others = [found for each in state.waiting if (found := waits_of_pod(state, each)) is not None]
            own = [WAITED_S[namespace]] * len(state.grants) if namespace in WAITED_S else []
            assert [each.seconds for each in of_others] == [own] * (len(state.waiting) if own else 0), "or a leak"
            assert state.quotas == tuple(each for each in whole.quotas if each.namespace == namespace)
            memory = sum(100 for grant in held if grant[0] == namespace)
            assert {each.held for each in state.quotas if not each.family} <= {memory}
            shares = {(g.node, s.gpu) for g in state.grants for c in g.containers for s in c.shares}
            found = {(node.name, gpu.uuid): gpu for node in state.nodes for gpu in node.gpus}
            before = {(node.name, gpu.uuid): gpu for node in whole.nodes for gpu in node.gpus}
            assert set(found) == (set(before) if has_all_nodes else shares)
            for key, gpu in found.items():
                assert msgspec.structs.replace(gpu, reason="") == msgspec.structs.replace(before[key], reason="")
                assert bool(gpu.reason) == bool(before[key].reason)


async def test_a_document_is_another_only_when_its_own_namespace_or_a_gpu_that_it_shows_has_changed():
    cache, pending = cluster([1, 1], [("alpha", 0, 0), ("bravo", 1, 0)], ["alpha"], [])
    clock = StandingClock()
    page = StatePage(cache, pending, lambda: StateReplica("p", True, "p"), clock)
    own, fleet = Scope("alpha", False), Scope("alpha", True)
    first, first_fleet = await page.current(own), await page.current(fleet)
    assert await page.current(own) is first

    cache.fleet.ledger.release("bravo-held-1-uid")
    clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    assert (await page.current(own)).tag == first.tag
    assert body(await page.current(own)) == body(first), "the same sequence, though the whole has another"
    later = await page.current(fleet)
    assert later.tag != first_fleet.tag
    assert decoded(later).sequence > decoded(first_fleet).sequence

    cache.limited_namespaces = ("bravo",)
    cache.state_quotas = lambda namespace: [StateQuota(namespace, "q", "limits.nvidia.com/gpumem", "", 1, 2)]
    clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    assert (await page.current(own)).tag == first.tag
    cache.limited_namespaces = ("alpha",)
    clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    limited = await page.current(own)
    assert (limited.tag != first.tag, [each.held for each in decoded(limited).quotas]) == (True, [1])

    cache.fleet.ledger.advance("alpha-held-0-uid", GrantState.ALLOCATED)
    clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    last = await page.current(own)
    assert (last.tag != limited.tag, decoded(last).sequence > decoded(limited).sequence) == (True, True)


async def test_a_replica_that_places_no_pods_says_so_and_names_none():
    cache, pending = cluster([1], [], ["alpha"], [])
    page = StatePage(cache, pending, lambda: StateReplica("bravo-1", False, "bravo-2"), StandingClock())
    state = decoded(await page.current(Scope("alpha", False)))
    assert state.notes == ("this replica of the scheduler does not place pods, so it does not know why they wait",)
    assert [(each.reason, each.message, each.reasons) for each in state.waiting] == [("", "", ())]
