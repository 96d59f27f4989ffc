"""Admission as a whole: who is asked when, what is left behind, and with what words a pod is refused."""

import pytest
from tests.unit.core.kubelet.admission_world import (
    GPU,
    container,
    cpus_of,
    decide,
    fresh,
    gpus_of,
    node,
    pod,
)

from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import (
    AdmissionOutcome,
    Allocate,
    FailedAnswer,
    PreferredAllocation,
    Rejection,
    ResourceManager,
)
from purser.core.kubelet.devicemanager import restore
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.machine import NumaNode
from purser.core.kubelet.managers import holders
from purser.core.kubelet.state import KubeletState
from purser.core.pod.manifest import ContainerKind

NOT_ALIGNED = "Resources cannot be allocated with Topology locality"
INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR


def refusal_of(outcome: AdmissionOutcome) -> Rejection:
    assert outcome.refusal is not None
    return outcome.refusal


def test_devices_and_cpus_come_from_the_same_numa_node() -> None:
    on = node()
    state = fresh(on)
    for uid, numa in (("a", 0), ("b", 1)):
        outcome = decide(on, state, pod(uid, container(gpus=3, cpus=4)), ["a"])
        assert outcome.refusal is None
        state = outcome.state
        assert state.hints[uid, "c"] == Hint(1 << numa, True)
        assert gpus_of(state, uid) == [f"gpu-{numa}-{i}" for i in range(3)]
    assert (cpus_of(state, "a"), cpus_of(state, "b")) == ("1-4", "8-11")


def test_policy_none_asks_for_no_hints_and_keeps_none() -> None:
    on = node("none")
    outcome = decide(on, fresh(on), pod("a", container(gpus=2)))
    assert outcome.refusal is None
    assert gpus_of(outcome.state, "a") == ["gpu-0-0", "gpu-0-1"]
    assert outcome.state.hints == {}


def test_a_pod_that_cannot_be_aligned_is_refused_by_the_topology_manager() -> None:
    on = node("single-numa-node")
    outcome = decide(on, fresh(on), pod("a", container(gpus=5)))
    assert outcome.refusal == Rejection(ResourceManager.TOPOLOGY, "c", "TopologyAffinityError", NOT_ALIGNED)


def test_with_scope_pod_no_container_is_to_blame() -> None:
    on = node("single-numa-node", "pod")
    outcome = decide(on, fresh(on), pod("a", container("one", gpus=3), container("two", gpus=2)))
    assert outcome.refusal == Rejection(ResourceManager.TOPOLOGY, "", "TopologyAffinityError", NOT_ALIGNED)
    assert not holders(outcome.state)


def test_with_scope_pod_all_containers_have_one_hint() -> None:
    on = node("restricted", "pod")
    outcome = decide(on, fresh(on), pod("a", container("one", gpus=2, cpus=3), container("two", gpus=2, cpus=3)))
    assert outcome.refusal is None
    assert outcome.state.hints == {("a", "one"): Hint(1, True), ("a", "two"): Hint(1, True)}
    assert gpus_of(outcome.state, "a", "two") == ["gpu-0-2", "gpu-0-3"]


def test_a_shortage_of_cpus_comes_after_the_devices_were_given() -> None:
    """And they stay given until kubelet counts again, which the next admission begins with."""
    on = node("best-effort")
    outcome = decide(on, fresh(on), pod("a", container(gpus=8, cpus=16)))
    assert refusal_of(outcome) == Rejection(
        ResourceManager.CPU,
        "c",
        "UnexpectedAdmissionError",
        "Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0, "
        "which is unexpected",
    )
    assert len(gpus_of(outcome.state, "a")) == 8
    assert ("a", "c") in outcome.state.hints
    after = decide(on, outcome.state, pod("b", container(gpus=8, cpus=15)))
    assert after.refusal is None
    assert not gpus_of(after.state, "a")
    assert set(after.state.hints) == {("b", "c")}


def test_memory_is_given_last() -> None:
    on = node("none", memory=True)
    outcome = decide(on, fresh(on), pod("a", container(gpus=1, memory_gib=40)))
    refusal = refusal_of(outcome)
    assert (refusal.manager, refusal.reason) == (ResourceManager.MEMORY, "UnexpectedAdmissionError")
    assert refusal.message.startswith("Allocate failed due to [memorymanager] ")
    assert refusal.message.endswith(", which is unexpected")
    assert gpus_of(outcome.state, "a") and cpus_of(outcome.state, "a")


def test_memory_has_a_say_in_where_a_pod_goes() -> None:
    on = node("restricted", memory=True)
    first = decide(on, fresh(on), pod("a", container(memory_gib=10)))
    second = decide(on, first.state, pod("b", container(gpus=1, memory_gib=10)), ["a"])
    assert first.state.hints["a", "c"] == Hint(1, True)
    assert second.state.hints["b", "c"] == Hint(2, True)
    assert gpus_of(second.state, "b") == ["gpu-1-0"]
    alone = decide(on, first.state, pod("b", container(gpus=1, memory_gib=10)), [])
    assert alone.state.hints == {("b", "c"): Hint(1, True)}, "what a had counts no more"


def test_kubelet_1_20_has_no_memory_manager() -> None:
    newer, older = node("none", memory=True), node("none", version="v1.20.2", memory=True)
    large = pod("a", container(memory_gib=40))
    assert decide(newer, fresh(newer), large).refusal is not None
    assert decide(older, fresh(newer), large).refusal is None


@pytest.mark.parametrize("policy", ["none", "restricted"])
def test_app_containers_have_what_init_containers_had(policy: str) -> None:
    on = node(policy, memory=True)
    one = pod(
        "a",
        container("prepare", gpus=4, cpus=4, memory_gib=8, kind=INIT),
        container("c", gpus=3, cpus=2, memory_gib=8),
        container("beside", gpus=1, cpus=2),
    )
    outcome = decide(on, fresh(on), one)
    assert outcome.refusal is None
    assert set(gpus_of(outcome.state, "a")) | set(gpus_of(outcome.state, "a", "beside")) == set(
        gpus_of(outcome.state, "a", "prepare")
    )
    assert cpus_of(outcome.state, "a", "prepare") == "1-4"
    assert (cpus_of(outcome.state, "a"), cpus_of(outcome.state, "a", "beside")) == ("1-2", "3-4")
    assert outcome.state.memory is not None
    taken = sum(n.tables["memory"].reserved for n in outcome.state.memory.nodes.values())
    assert taken == 9 << 30, "8 GiB once, and 1 GiB for the container beside"


@pytest.mark.parametrize(("version", "taken"), [("v1.28.15", 2), ("v1.29.0", 4)])
def test_a_sidecar_keeps_its_devices_where_kubelet_has_sidecars(version: str, taken: int) -> None:
    on = node("none", version=version)
    outcome = decide(on, fresh(on), pod("a", container("proxy", gpus=2, kind=SIDECAR), container(gpus=2)))
    assert len(outcome.state.devices.allocated[GPU]) == taken


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_every_manager_takes_back_what_pods_that_are_gone_had(policy: str) -> None:
    on = node(policy, memory=True)
    whole_node = container(gpus=8, cpus=15, memory_gib=31)
    first = decide(on, fresh(on), pod("a", whole_node))
    second = decide(on, first.state, pod("b", whole_node))
    assert first.refusal is None and second.refusal is None
    assert second.state.memory is not None
    assert cpus_of(second.state, "a") == "" and cpus_of(second.state, "b") == "1-15"
    assert set(second.state.memory.blocks) == {("b", "c")}


def test_nothing_is_freed_while_the_pod_sources_are_not_ready() -> None:
    on = node("none")
    first = decide(on, fresh(on), pod("a", container(gpus=8))).state
    assert refusal_of(decide(on, first, pod("b", container(gpus=1)), None)).manager is ResourceManager.DEVICE
    assert decide(on, first, pod("b", container(gpus=1)), []).refusal is None


def test_a_manager_that_is_not_reached_frees_nothing() -> None:
    on = node("none")
    first = decide(on, fresh(on), pod("a", container(gpus=4, cpus=4))).state
    refused = decide(on, first, pod("b", container(gpus=9, cpus=1)), [])
    assert refusal_of(refused).manager is ResourceManager.DEVICE
    assert cpus_of(refused.state, "a") == "1-4"
    assert not gpus_of(refused.state, "a")


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_admitting_a_pod_again_changes_nothing(policy: str, scope: str) -> None:
    on = node(policy, scope, memory=True)
    one = pod("a", container("one", gpus=1, cpus=2), container("two", gpus=1, cpus=2))
    first = decide(on, fresh(on), one)
    assert first.refusal is None
    assert decide(on, first.state, one, ["a"]) == first


def restarted(state: KubeletState) -> KubeletState:
    """kubelet's state after a restart, before its plugins are back."""
    return KubeletState(restore(state.devices.held, [GPU], now=0.0), state.cpus, state.memory)


def test_after_a_restart_running_containers_go_on_and_others_wait_for_the_plugin() -> None:
    on = node("none")
    one = pod("a", container(gpus=1))
    state = restarted(decide(on, fresh(on), one).state)
    assert decide(on, state, one, None, ["c"]).refusal is None
    for active, running in ((None, []), (["a"], ["c"])):
        assert "no healthy devices present" in refusal_of(decide(on, state, one, active, running)).message


def test_the_plugin_is_asked_about_aligned_devices_and_sees_the_state_so_far() -> None:
    on = node()
    state = fresh(on)
    admission = admit(on, state, pod("a", container(gpus=2, cpus=2)), [])
    asked = next(admission)
    assert isinstance(asked, PreferredAllocation)
    assert asked.available == {f"gpu-0-{i}" for i in range(4)}
    assert asked.state.hints["a", "c"] == Hint(1, True)
    asked = admission.send(("gpu-0-3", "gpu-0-1"))
    assert isinstance(asked, Allocate)
    assert asked.device_ids == {"gpu-0-1", "gpu-0-3"}
    with pytest.raises(StopIteration) as end:
        admission.send(b"response")
    assert gpus_of(end.value.value.state, "a") == ["gpu-0-1", "gpu-0-3"]
    assert state == fresh(on), "what was handed in stays as it was"


@pytest.mark.parametrize("answers", [[FailedAnswer("no")], [("gpu-0-0",), FailedAnswer("no")]])
def test_a_call_that_fails_fails_the_pod(answers: list[object]) -> None:
    on = node()
    admission = admit(on, fresh(on), pod("a", container(gpus=1)), [])
    next(admission)
    with pytest.raises(StopIteration) as end:
        for answer in answers:
            admission.send(answer)  # type: ignore[arg-type]
    refusal = refusal_of(end.value.value)
    assert refusal.reason == "UnexpectedAdmissionError"
    assert refusal.message.startswith("Allocate failed due to ") and "no, which is unexpected" in refusal.message


def test_a_kubelet_that_would_not_start_admits_nothing() -> None:
    on = node()
    for_nine = tuple(NumaNode(n) for n in range(9))
    broken = type(on)(on.config, type(on.machine)(for_nine, on.machine.cpus))
    with pytest.raises(KubeletStartError, match="more than 8 NUMA Nodes"):
        next(admit(broken, fresh(on), pod("a", container()), []))


@pytest.mark.parametrize("version", ["v1.32.0", "v1.36.2"])
def test_34_numa_nodes_of_which_two_hold_anything(version: str) -> None:
    """A GB200's: GPU memory has nodes of its own. kubelet before 1.36.2 looks at 2^34 sets of nodes here."""
    on = node("restricted", version=version, numa_nodes=34, memory=True)
    state = fresh(on)
    for uid in ("a", "b"):
        outcome = decide(on, state, pod(uid, container(gpus=4, cpus=7)), ["a"])
        assert outcome.refusal is None
        state = outcome.state
    assert state.hints == {("a", "c"): Hint(1, True), ("b", "c"): Hint(2, True)}
