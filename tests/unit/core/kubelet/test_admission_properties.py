"""Whatever pods come and go, and whatever kubelet they come to: nothing is given twice, and nothing is lost."""

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.kubelet.admission_world import GIB, NIC, container, decide, devices, fresh, node, pod

from purser.core.kubelet import managers
from purser.core.kubelet.asks import AdmissionOutcome
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import ContainerKey, KubeletNode, KubeletState
from purser.core.pod.manifest import ContainerKind

VERSIONS = ("v1.20.2", "v1.22.17", "v1.23.17", "v1.24.0", "v1.27.16", "v1.31.0", "v1.36.2")
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


class Step(msgspec.Struct, frozen=True):
    """A pod comes; those at ``gone`` places have ended before."""

    pod: KubeletPod
    gone: frozenset[int]


@st.composite
def nodes(draw: st.DrawFn) -> KubeletNode:
    return node(
        draw(st.sampled_from(POLICIES)),
        draw(st.sampled_from(["container", "pod"])),
        draw(st.sampled_from(VERSIONS)),
        memory=draw(st.booleans()),
        threads=draw(st.sampled_from([1, 2])),
    )


@st.composite
def pods(draw: st.DrawFn) -> KubeletPod:
    kinds = draw(st.lists(st.sampled_from([ContainerKind.INIT, ContainerKind.SIDECAR]), max_size=2))
    kinds += [ContainerKind.APP] * draw(st.integers(1, 2))
    one = pod("", *(draw(containers(f"c{place}", kind)) for place, kind in enumerate(kinds)))
    return one if draw(st.booleans()) else msgspec.structs.replace(one, qos=QosClass.BURSTABLE)


@st.composite
def containers(draw: st.DrawFn, name: str, kind: ContainerKind) -> KubeletContainer:
    nics = draw(st.integers(0, 2))
    return container(
        name,
        gpus=draw(st.integers(0, 5)),
        cpus=draw(st.integers(1, 6)),
        memory_gib=draw(st.integers(1, 14)),
        kind=kind,
        **({NIC: nics} if nics else {}),
    )


steps = st.lists(st.builds(Step, pods(), st.frozensets(st.integers(0, 4), max_size=2)), min_size=1, max_size=5)


def run(
    on: KubeletNode, of: Iterable[Step]
) -> Iterator[tuple[KubeletState, KubeletPod, dict[str, KubeletPod], AdmissionOutcome]]:
    """State before, pod, the pods that are active beside it, and what became of it."""
    state, active = fresh(on, devices(1, NIC, devices())), dict[str, KubeletPod]()
    for place, step in enumerate(of):
        one = msgspec.structs.replace(step.pod, uid=f"uid-{place}")
        active = {uid: other for n, (uid, other) in enumerate(active.items()) if n not in step.gone}
        outcome = decide(on, state, one, active)
        yield state, one, active, outcome
        state = outcome.state
        if outcome.refusal is None:
            active[one.uid] = one


def longest_lived(on: KubeletNode, active: dict[str, KubeletPod]) -> list[ContainerKey]:
    """The containers whose holdings none other may have: init containers leave theirs to others of their pod."""
    sidecars = {ContainerKind.SIDECAR} if on.config.parsed_version >= (1, 29, 0) else set()
    kinds = {ContainerKind.APP} | sidecars
    return [(uid, each.name) for uid, one in active.items() for each in one.containers if each.kind in kinds]


def devices_held(state: KubeletState, key: ContainerKey, resource: str) -> frozenset[str]:
    held = state.devices.held.get(key, {})
    return held[resource].device_ids if resource in held else frozenset()


@given(nodes(), steps)
def test_no_device_is_given_twice_and_each_container_has_what_it_asked_for(on: KubeletNode, of: list[Step]) -> None:
    for _, one, before, outcome in run(on, of):
        state = outcome.state
        active = before | ({one.uid: one} if outcome.refusal is None else {})
        for resource, known in state.devices.resources.items():
            held = [devices_held(state, key, resource) for key in longest_lived(on, active)]
            assert sum(map(len, held)) == len(frozenset().union(*held))
            everything = [devices_held(state, key, resource) for key in state.devices.held]
            assert frozenset().union(*everything) <= state.devices.allocated.get(resource, frozenset()) <= known.healthy
            by_pod = [of_pod(state, other, resource) for other in active.values()]
            assert sum(map(len, by_pod)) == len(frozenset().union(*by_pod))
            for other in active.values():
                for each in other.containers:
                    ids = devices_held(state, (other.uid, each.name), resource)
                    assert len(ids) == each.limits.get(resource, 0)


def of_pod(state: KubeletState, one: KubeletPod, resource: str) -> frozenset[str]:
    return frozenset().union(*(devices_held(state, (one.uid, each.name), resource) for each in one.containers))


@given(nodes(), steps)
def test_under_single_numa_node_nothing_spans_two(on: KubeletNode, of: list[Step]) -> None:
    if on.config.topology_policy != "single-numa-node":
        return
    for _, one, _, outcome in run(on, of):
        if outcome.refusal is not None:
            continue
        for each in one.containers:
            used = numa_nodes_of(on, outcome.state, (one.uid, each.name))
            assert len(used) <= 1 or reuses(one, each), (each, used)


def reuses(one: KubeletPod, each: KubeletContainer) -> bool:
    """Devices and CPUs of init containers are handed on whatever NUMA node they are of."""
    return any(other.kind is not ContainerKind.APP for other in one.containers if other is not each)


def numa_nodes_of(on: KubeletNode, state: KubeletState, key: ContainerKey) -> set[int]:
    assert state.cpus is not None
    used = {numa for numa, cpus in on.machine.cpus_by_numa.items() if cpus & state.cpus.exclusive.get(key, 0)}
    for allocation in state.devices.held.get(key, {}).values():
        used |= set(allocation.devices_per_numa)
    return used


@given(nodes(), steps)
def test_under_restricted_every_hint_is_a_preferred_one(on: KubeletNode, of: list[Step]) -> None:
    if on.config.topology_policy != "restricted":
        return
    for _, one, _, outcome in run(on, of):
        if outcome.refusal is None:
            assert all(outcome.state.hints[one.uid, each.name].preferred for each in one.containers)


@given(nodes(), steps)
def test_a_refused_pod_leaves_no_trace_for_the_next(on: KubeletNode, of: list[Step]) -> None:
    """kubelet rolls nothing back, and yet the next pod fares as if the refused one had never come.

    It frees the refused pod's devices and CPUs to the last one. Bytes can stay moved between NUMA nodes (the test
    after this one): then the next pod's hints may be others, and nothing is said of them here.
    """
    for state, one, before, outcome in run(on, of):
        if outcome.refusal is None:
            continue
        freed, never = (managers.free_all_but(each, before) for each in (outcome.state, state))
        assert (freed.devices.held, freed.cpus) == (never.devices.held, never.cpus)
        if freed.memory != never.memory:
            assert outcome.state.memory and freed.memory and never.memory
            assert freed.memory.blocks == never.memory.blocks
            blocks = chain.from_iterable(outcome.state.memory.blocks.values())
            assert any(block.nodes.bit_count() > 1 for block in blocks)
            continue
        following = msgspec.structs.replace(one, uid="next")
        after, without = (decide(on, from_, following, before) for from_ in (outcome.state, state))
        assert after.refusal == without.refusal
        for each in following.containers:
            key = ("next", each.name)
            assert after.state.devices.held.get(key) == without.state.devices.held.get(key)
            assert after.state.hints.get(key) == without.state.hints.get(key)


def test_memory_of_several_numa_nodes_is_given_back_to_the_lowest_first() -> None:
    """kubelet does not remember how many bytes of a block came from which node (RemoveContainer, v1.31 to v1.37): with
    another block beside it, what stays taken moves to the other node, after a refused pod as after one that ends."""
    on = node("best-effort", version="v1.31.0", memory=True)
    state = decide(on, fresh(on), pod("alone", container(gpus=3, memory_gib=8))).state
    across = pod("across", container("first", gpus=5, memory_gib=17), container("second", gpus=1))
    outcome = decide(on, state, across, {"alone"})
    assert outcome.refusal is not None
    assert reserved_gib(state) == {0: 8, 1: 0}
    assert reserved_gib(outcome.state) == {0: 15, 1: 10}
    assert reserved_gib(managers.free_all_but(outcome.state, {"alone"})) == {0: 0, 1: 8}


def reserved_gib(state: KubeletState) -> dict[int, int]:
    assert state.memory is not None
    return {number: each.tables["memory"].reserved // GIB for number, each in state.memory.nodes.items()}


@given(nodes(), steps)
def test_the_order_of_active_pods_changes_nothing(on: KubeletNode, of: list[Step]) -> None:
    for state, one, before, outcome in run(on, of):
        assert decide(on, state, one, list(before)[::-1]) == outcome
