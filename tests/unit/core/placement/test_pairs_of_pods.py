"""Pods of which several containers ask for GPUs, some for network devices too, against what trying everything finds."""

import random
from collections import Counter
from itertools import combinations, product

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.core.placement.test_nics import APP, INIT, VF, Kubelet, above, bind, fleet_of, inventory

from purser.core.device.ids import uuids_of
from purser.core.kubelet.config import TopologyPolicy
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.model import ContainerRequest, DeviceRequest, GpuNic, GpuPolicy, NodePool, PodRequest, PoolPlace
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Evaluator, Placement, Reason, Refusal, to_grant
from purser.core.placement.place import MAX_SPARING_CONTAINERS as LIMIT
from purser.core.policy.settings import PolicySettings
from purser.core.sriov.pairs import pairs_of, switches_of

RAIL = "mellanox.com/rail"
WORDS = [PolicySettings(), *(PolicySettings(gpu=(word,)) for word in GpuPolicy)]


def node(gpus, vfs, rails=(), slots=1):
    found = inventory(gpus=gpus, vfs=vfs, slots=slots)
    pool = NodePool(RAIL, tuple(PoolPlace(above(s), count, 0) for s, count in enumerate(rails)))
    return msgspec.structs.replace(found, pools=(*found.pools, pool))


def pod(*containers, gpu_nic=GpuNic.REQUIRED, uid="p", memory_mib=None, **asked):
    """``containers``: of each its GPUs, VFs and devices of the second pool; of an init container as a list."""
    parts, seen = [], []
    for number, each in enumerate(containers):
        count, *nics = each
        name, kind = f"c{number}", INIT if isinstance(each, list) else APP
        beside = tuple((pool, n) for pool, n in zip((VF, RAIL), nics, strict=False) if n)
        size = {"memory_mib": memory_mib} if memory_mib else {"memory_percent": 100, "cores_percent": 100}
        parts.append(ContainerRequest(name, kind, DeviceRequest(count, **size, **asked), beside=beside))
        amounts = {GPU_RESOURCE: count, **dict(beside)}
        seen.append(KubeletContainer(name, kind, amounts, amounts))
    whole = KubeletPod(uid, tuple(seen), QosClass.BURSTABLE)
    return PodRequest(uid, "ns", uid, tuple(parts), kubelet_pod=whole, gpu_nic=gpu_nic)


def most_pairs(switches, free, containers, places=()):
    """By giving every set of GPUs to every container, and to each GPU every device or none; None: too few GPUs.

    ``switches``: of each GPU; ``free``: by pool and switch, how many devices; ``places``: of each GPU, for how many
    containers it is, one if it is not said.
    """
    places = places or (1,) * len(switches)
    if not containers:
        return 0
    (count, *asked), *rest = containers
    best = None
    for chosen in combinations([at for at, left in enumerate(places) if left], count):
        left = tuple(n - (at in chosen) for at, n in enumerate(places))
        for pools in product((None, *range(len(asked))), repeat=count):
            took = Counter((pool, switches[at]) for pool, at in zip(pools, chosen, strict=True) if pool is not None)
            if any(n > free.get(key, 0) for key, n in took.items()):
                continue
            if any(n > asked[pool] for pool, n in Counter(filter(lambda each: each is not None, pools)).items()):
                continue
            after = {key: n - took[key] for key, n in free.items()}
            others = most_pairs(switches, after, rest, left)
            if others is not None:
                best = max(best or 0, took.total() + others)
    return best


two_places = st.tuples(st.integers(0, 3), st.integers(0, 3))
cases = st.tuples(
    st.lists(st.integers(0, 1), min_size=2, max_size=4),
    two_places,
    st.one_of(st.just((0, 0)), two_places),
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 3), st.sampled_from((0, 0, 0, 1, 2))), min_size=1, max_size=3),
)


@given(cases, st.sampled_from(WORDS), st.integers(0, 3))
def test_pods_get_as_many_pairs_as_there_can_be_and_wait_only_where_there_are_too_few(case, policy, used):
    gpus, vfs, rails, containers = case
    found = node(gpus, vfs, rails)
    fleet = fleet_of(found)
    free = {(pool, s): n for pool, counts in enumerate((vfs, rails)) for s, n in enumerate(counts)}
    if used < len(gpus) - 1 and sum(vfs):  # a pod that is there already
        held = bind(fleet, pod((1, used and 1), gpu_nic=GpuNic.PREFERRED, uid="held"), policy=policy)
        at = next(device.index for device in found.devices if device.uuid in held.uuids)
        gpus = [each for index, each in enumerate(gpus) if index != at]
        for share in held.pools:
            free[0, next(s for s in (0, 1) if above(s)[-1] == share.place)] -= share.count
    most = most_pairs(gpus, free, containers)
    wanted = sum(min(count, sum(nics)) for count, *nics in containers)
    for gpu_nic in GpuNic:
        asks = pod(*containers, gpu_nic=gpu_nic)
        if not any(each.beside for each in asks.containers):
            continue
        evaluator = Evaluator(fleet, policy)
        verdict, judged = evaluator.place("n", asks), evaluator.evaluate(asks, ["n"])
        assert isinstance(verdict, Refusal) == (not judged.fits)
        if most is None:
            assert isinstance(verdict, Refusal)
        elif gpu_nic is GpuNic.REQUIRED and most < wanted:
            assert isinstance(verdict, Refusal)
            assert verdict.counts[0][0] is Reason.TOO_FEW_PAIRS
        else:
            assert isinstance(verdict, Placement), verdict
            assert judged.pairs.get("n", 0) == most
            holds_what_it_says(found, free, asks, to_grant(verdict, asks, found), most)


def holds_what_it_says(found, free, asks, grant, most):
    """Each container its own GPUs and devices, all of them where there are enough, and so many pairs by these."""
    uuids = [uuid for part in grant.containers for uuid in part.uuids]
    assert len(uuids) == len(set(uuids)) == sum(each.devices.count for each in asks.containers)
    assert sum(each.pairs for each in pairs_of(grant, switches_of(found.devices), found.pools)) == most
    by_place = Counter()
    for share in grant.pools:
        by_place[(VF, RAIL).index(share.resource), share.place] += share.count
    assert all(n <= free[pool, int(place.removeprefix("switch-"))] for (pool, place), n in by_place.items())
    for pool, name in enumerate((VF, RAIL)):
        asked = {each.name: dict(each.beside).get(name, 0) for each in asks.containers}
        if sum(asked.values()) <= sum(n for (of, _), n in free.items() if of == pool):
            got = Counter()
            for share in grant.pools:
                got[share.container] += share.count * (share.resource == name)
            assert +got == +Counter(asked)


@pytest.mark.parametrize("policy", WORDS, ids=lambda each: each.gpu[0])
@pytest.mark.parametrize("order", [((1, 0), (1, 1)), ((1, 1), (1, 0))], ids=["plain first", "plain last"])
def test_a_container_leaves_the_gpu_near_the_only_vf_to_the_one_that_needs_it(policy, order):
    for gpus in ((0, 1), (1, 0)):
        placement = Evaluator(fleet_of(node(gpus, (1, 0))), policy).place("n", pod(*order))
        assert isinstance(placement, Placement), placement
        again = Evaluator(fleet_of(node(gpus, (1, 0))), policy).place("n", pod(*order))
        assert placement == again


def test_vfs_beyond_pairs_are_not_those_that_another_container_needs_for_its_pair():
    fleet = fleet_of(node((0, 1), (2, 2)))
    grant = bind(fleet, pod((1, 3), (1, 1)))
    assert (
        sum(each.pairs for each in pairs_of(grant, switches_of(node((0, 1), ()).devices), node((), (2, 2)).pools)) == 2
    )


def test_a_container_that_may_have_one_gpu_alone_gets_it_whatever_pairs_that_costs():
    """No pod waits for a pair."""
    asks = pod((1, 1), (1, 0), gpu_nic=GpuNic.PREFERRED)
    first, second = asks.containers
    picky = msgspec.structs.replace(second.devices, uuids_allowed=("n-1",))
    asks = msgspec.structs.replace(asks, containers=(first, msgspec.structs.replace(second, devices=picky)))
    fleet = fleet_of(node((0, 1), (0, 1)))
    assert [part.uuids for part in bind(fleet, asks).containers] == [("n-0",), ("n-1",)]
    required = msgspec.structs.replace(asks, gpu_nic=GpuNic.REQUIRED)
    assert isinstance(Evaluator(fleet_of(node((0, 1), (0, 1)))).place("n", required), Refusal)


@given(
    st.lists(st.integers(0, 1), min_size=1, max_size=3),
    two_places,
    st.lists(st.just((1, 0)) | st.tuples(st.integers(1, 2), st.integers(1, 2)), min_size=1, max_size=3),
    st.sampled_from(WORDS),
)
@example([0, 1, 0], (2, 0), [(1, 0), (1, 0), (2, 2)], WORDS[0])  # two different GPUs are to be left
def test_shares_of_one_size_get_as_many_pairs_as_there_can_be(gpus, vfs, containers, policy):
    """Of one pool. Whether there are GPUs is not for pairs to say: shares are packed one after another, and so may a
    container that wants several GPUs and no device take the last place that a pair needs."""
    asks = pod(*containers, memory_mib=20000)
    fleet = fleet_of(node(gpus, vfs, slots=10))
    places = 1 if policy.gpu == (GpuPolicy.MUTEX,) else 2
    most = most_pairs(tuple(gpus), {(0, s): n for s, n in enumerate(vfs)}, containers, (places,) * len(gpus))
    wanted = sum(min(each) for each in containers)
    verdict = Evaluator(fleet, policy).evaluate(asks, ["n"])
    if verdict.fits:
        assert verdict.pairs.get("n", 0) == wanted == most
    elif verdict.refusals["n"].counts[0][0] is Reason.TOO_FEW_PAIRS and sum(nics for _, nics in containers) <= sum(vfs):
        # With fewer devices than are asked for, kube-scheduler refuses the node before.
        assert most is None or most < wanted


@pytest.mark.parametrize("policy", WORDS, ids=lambda each: each.gpu[0])
def test_init_containers_leave_what_later_containers_need_and_hand_theirs_on(policy):
    fleet = fleet_of(node((0, 0, 1, 1), (1, 0)))
    grant = bind(fleet, pod([1, 0], (2, 0), [1, 1], (1, 1)), policy=policy)
    assert grant.of("c2").uuids == grant.of("c3").uuids
    assert {share.container: share.place for share in grant.pools} == dict.fromkeys(("c2", "c3"), above(0)[-1])


@given(st.sampled_from(list(TopologyPolicy)), st.sampled_from((1, 4)), st.booleans(), st.integers(0, 1 << 30))
def test_kubelet_gives_every_container_the_devices_that_were_foretold(policy, slots, excluded, seed):
    """Where it chooses NUMA nodes itself, pods may wait for pairs that there are, but none is rejected."""
    rng = random.Random(seed)
    kubelet = Kubelet(policy, slots, VF, rng, excluded)
    containers = [(rng.randint(1, 2), rng.randint(0, 2)) for _ in range(rng.randint(2, 3))]
    if sum(nics for _, nics in containers) > len(kubelet.vfs):
        return
    for gpu_nic in GpuNic:
        asks = pod(*containers, gpu_nic=gpu_nic, memory_mib=10000 if slots > 1 else None)
        placement = Evaluator(kubelet.fleet).place("n", asks)
        if isinstance(placement, Refusal):
            assert policy is not TopologyPolicy.NONE or gpu_nic is GpuNic.REQUIRED
            continue
        grant = to_grant(placement, asks, kubelet.inventory)
        outcome = kubelet.admit(asks, grant)
        assert outcome.refusal is None, (outcome.refusal, grant)
        for part in grant.containers:
            held = outcome.state.devices.held[asks.uid, part.container]
            assert Counter(uuids_of(held[GPU_RESOURCE].device_ids)) == Counter(part.uuids)
            planned = {share.place: share.count for share in grant.pools if share.container == part.container}
            got = Counter(kubelet.vfs[id_].switches[-1] for id_ in held[VF].device_ids) if VF in held else {}
            assert got == planned or not grant.pools


@pytest.mark.parametrize(("containers", "is_placed"), [(LIMIT, True), (LIMIT + 1, False)])
def test_of_too_many_containers_none_leaves_anything_to_others(containers, is_placed):
    plain, others = [(1, 0)] * (containers - 1), (1,) * (containers - 1)
    fleets = [fleet_of(node(gpus, (1, 0))) for gpus in ((0, *others), (*others, 0))]
    spread = PolicySettings(gpu=(GpuPolicy.SPREAD,))
    verdicts = [Evaluator(each, spread).place("n", pod(*plain, (1, 1))) for each in fleets]
    assert all(isinstance(each, Placement) for each in verdicts) == is_placed
    assert all(isinstance(Evaluator(each, spread).place("n", pod((1, 1), *plain)), Placement) for each in fleets)
