"""What holds after any sequence of admissions and ends of pods."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.core.kubelet.cpumanager.machines import container, machine, node, pod

from purser.core.kubelet.cpumanager import allocate, free_all_but, hints, pod_hints, start
from purser.core.kubelet.cpumanager.checkpoint import decode, encode
from purser.core.kubelet.cpumanager.requests import guaranteed_cpus
from purser.core.kubelet.cpuset import CpuSet
from purser.core.kubelet.pod import KubeletPod, QosClass, releases_resources
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour
from purser.core.pod.manifest import ContainerKind

NODES = [
    node(machine(sockets=sockets, numa_per_socket=numas, cores=cores, caches=2), version=version, **options)
    for sockets, numas, cores in ((1, 1, 6), (2, 1, 4), (2, 2, 2))
    for version, options in (
        ("v1.20.2", {}),
        ("v1.24.0", {"full_pcpus_only": True}),
        ("v1.36.2", {}),
        ("v1.36.2", {"distribute_cpus_across_numa": True}),
        ("v1.36.2", {"strict_cpu_reservation": True, "distribute_cpus_across_cores": True}),
        ("v1.36.2", {"prefer_align_cpus_by_uncorecache": True, "align_by_socket": True}),
    )
]

CONTAINERS = st.lists(
    st.tuples(st.sampled_from(ContainerKind), st.sampled_from([0, 0.5, 1, 2, 3, 4, 6])), min_size=1, max_size=4
)
MASKS = st.one_of(st.none(), st.integers(1, 15))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), CONTAINERS, MASKS, st.sampled_from([QosClass.GUARANTEED, QosClass.BURSTABLE])),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("restart")),
    ),
    max_size=12,
)


def pod_of(uid: str, containers: list[tuple[ContainerKind, float]], qos: QosClass) -> KubeletPod:
    in_order = sorted(containers, key=lambda found: found[0] is ContainerKind.APP)
    named = (container(f"c{place}", cpus, kind) for place, (kind, cpus) in enumerate(in_order))
    return pod(*named, uid=uid, qos=qos)


def admit(on: KubeletNode, state: CpuState, asks: KubeletPod, mask: int | None) -> CpuState:
    """As kubelet does: what was given before a refusal stays given until the next count."""
    after: CpuState | None = state
    reusable = 0
    for each in asks.containers:
        hints(on, after, asks, each, reusable)
        after, refused, reusable = allocate(on, after, asks, each, mask, reusable)
        if refused is not None:
            break
    pod_hints(on, after, asks)
    assert after is not None
    return after


def check(on: KubeletNode, state: CpuState, pods: Mapping[str, KubeletPod]) -> None:
    switches = behaviour(on.config.parsed_version)
    lasting: CpuSet = 0
    of_pod: dict[str, CpuSet] = {}
    everything = state.default
    for (uid, name), cpus in state.exclusive.items():
        held_by = next(each for each in pods[uid].containers if each.name == name)
        assert cpus.bit_count() == guaranteed_cpus(pods[uid], held_by) > 0
        assert not cpus & (state.default | state.reserved), "exclusive CPUs are nobody else's"
        if not releases_resources(switches, held_by):
            assert not cpus & lasting, "two containers that run at once share no exclusive CPU"
            lasting |= cpus
        assert not cpus & (sum(of_pod.values()) - of_pod.get(uid, 0)), "pods share no exclusive CPU"
        of_pod[uid] = of_pod.get(uid, 0) | cpus
        everything |= cpus
    strictly = state.reserved if on.config.cpu_options.strict_cpu_reservation else 0
    assert everything == on.machine.all_cpus & ~strictly, "no CPU is lost"


@examples(150)
@given(st.sampled_from(NODES), STEPS)
def test_exclusive_cpus_never_overlap_and_freed_ones_return(on: KubeletNode, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    fresh = start(on)
    assert fresh is not None
    state: CpuState = fresh
    pods: dict[str, KubeletPod] = {}
    for place, (operation, *details) in enumerate(steps):
        if operation == "add":
            uid = f"pod{place}"
            pods[uid] = pod_of(uid, details[0], details[2])
            state = admit(on, state, pods[uid], details[1])
        elif operation == "end" and pods:
            pods.pop(sorted(pods)[details[0] % len(pods)])
            state = free_all_but(state, pods) or fresh
        elif operation == "restart" and state.default:
            restarted = start(on, decode(encode(state), "static"))
            assert restarted == state, "a restart changes nothing"
            state = restarted
        check(on, state, pods)
    assert free_all_but(state, ()) == fresh


@examples(150)
@given(st.sampled_from(NODES), CONTAINERS, MASKS)
def test_admitting_a_pod_again_changes_nothing(
    on: KubeletNode, containers: list[tuple[ContainerKind, float]], mask: int | None
) -> None:
    fresh = start(on)
    assert fresh is not None
    asks = pod_of("pod", containers, QosClass.GUARANTEED)
    once = admit(on, fresh, asks, mask)
    if all((asks.uid, each.name) in once.exclusive for each in asks.containers if guaranteed_cpus(asks, each)):
        assert admit(on, once, asks, mask) is once


@examples(150)
@given(st.sampled_from(NODES), st.integers(1, 16), st.integers(0, (1 << 16) - 1))
def test_where_there_is_a_hint_its_nodes_alone_are_enough(on: KubeletNode, cpus: int, default: int) -> None:
    fresh = start(on)
    assert fresh is not None
    state = CpuState(default=default & fresh.default | fresh.reserved, reserved=fresh.reserved)
    asks = container("c", cpus)
    found = hints(on, state, pod(asks), asks, 0)
    assert found is not None
    if on.config.cpu_options.full_pcpus_only or on.config.cpu_options.align_by_socket:
        return
    for hint in found["cpu"] or ():
        assert hint.mask is not None
        after, refused, _ = allocate(on, state, pod(asks), asks, hint.mask, 0)
        assert refused is None and after is not None
        on_nodes = sum(of_node for numa, of_node in on.machine.cpus_by_numa.items() if hint.mask >> numa & 1)
        assert after.exclusive["pod", "c"] & ~on_nodes == 0
