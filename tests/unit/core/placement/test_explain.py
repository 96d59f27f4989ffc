"""Refusals as people read them in kube-scheduler's event."""

from unittest.mock import patch

import msgspec
import pytest

from purser.core.fleet import Fleet
from purser.core.grant.quota import Demand, QuotaLimits
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    DeviceShare,
    Enforcement,
    GpuPolicy,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Evaluator, demand_over_quota, explain
from purser.core.placement.explain import wordings
from purser.core.placement.reasons import Reason

LEAD = "node(s) had no suitable GPU: "


def cards(count: int, model: str = "Tesla T4", memory_mib: int = 15360, **facts: object) -> tuple[Device, ...]:
    one = Device("", 0, model, memory_mib, slots=10)
    return tuple(msgspec.structs.replace(one, uuid=f"{model}-{n}", index=n, **facts) for n in range(count))


def fleet(*nodes: tuple[Device, ...], cordoned: tuple[str, ...] = ()) -> Fleet:
    made = Fleet()
    for number, devices in enumerate(nodes):
        own = tuple(msgspec.structs.replace(d, uuid=f"n{number}-{d.index}") for d in devices)
        made.set_inventory(NodeInventory(f"n{number}", own, cordoned=cordoned))
    return made


def use(state: Fleet, node: str, *indices: int, memory_mib: int = 1000, cores: int = 10) -> None:
    shares = tuple(DeviceShare(f"{node}-{index}", memory_mib, cores) for index in indices)
    part = ContainerGrant("c", ContainerKind.APP, shares)
    state.ledger.adopt(Grant(f"{node}{indices}", "ns", "other", node, (part,)))


def pod(*requests: DeviceRequest) -> PodRequest:
    named = (ContainerRequest(f"c{number}", ContainerKind.APP, each) for number, each in enumerate(requests))
    return PodRequest("u", "ns", "p", tuple(named))


def why(state: Fleet, *requests: DeviceRequest, nodes: tuple[str, ...] = (), quota: str = "") -> str:
    request = pod(*requests)
    names = nodes or tuple(node.name for node in state)
    evaluation = Evaluator(state).evaluate(request, names)
    assert not evaluation.fits
    said = explain(evaluation.refusals, request, state, quota)
    return said.removeprefix(LEAD)


WHOLE = DeviceRequest(1, memory_percent=100)


def test_reasons_are_counted_by_nodes_and_gpus_and_the_largest_comes_first() -> None:
    state = fleet(cards(8, memory_mib=8192), cards(8, memory_mib=8192), cards(4, model="A100"))
    wanted = DeviceRequest(1, memory_mib=10240, models_allowed=("T4",))
    assert why(state, wanted, nodes=("n0", "n1", "n2", "cpu")) == (
        "16 GPUs on 2 nodes are too small for 10240 MiB (largest: 8192 MiB); 4 GPUs on 1 node do not match the "
        "pod's request: a model with T4 (available: A100); 1 node has no inventory: no agent runs there, or it has not "
        "written one"
    )


def test_whole_gpus_that_are_busy_are_in_use_and_not_short_of_memory() -> None:
    state = fleet(cards(2))
    use(state, "n0", 0)
    use(state, "n0", 1)
    assert why(state, WHOLE) == "2 GPUs on 1 node are in use, and the pod wants whole GPUs"
    assert why(state, DeviceRequest(1, memory_mib=0, cores_percent=100)) == why(state, WHOLE)


def test_an_idle_gpu_that_is_too_small_is_not_said_to_be_in_use() -> None:
    state = fleet(cards(1), cards(1, memory_mib=40960))
    use(state, "n1", 0, memory_mib=30000)
    wanted = DeviceRequest(1, memory_mib=20000, cores_percent=100)
    assert why(state, wanted) == "2 GPUs on 2 nodes have less than 20000 MiB of memory free (most: 15360 MiB)"


def test_gpus_that_are_too_small_even_when_idle_are_not_to_be_waited_for() -> None:
    state = fleet(cards(2), cards(1, memory_mib=40960))
    use(state, "n1", 0, memory_mib=12000)
    large = DeviceRequest(1, memory_mib=50000)
    assert why(state, large) == "3 GPUs on 2 nodes are too small for 50000 MiB (largest: 40960 MiB)"
    assert why(state, large, nodes=("n0",)) == "2 GPUs on 1 node are too small for 50000 MiB (largest: 15360 MiB)"
    alone = msgspec.structs.replace(large, cores_percent=100)
    assert why(state, alone, nodes=("n1",)) == "1 GPU on 1 node is too small for 50000 MiB (largest: 40960 MiB)"
    assert why(state, DeviceRequest(1, memory_mib=40960)) == (
        "3 GPUs on 2 nodes have less than 40960 MiB of memory free (most: 28960 MiB)"
    )


def test_a_policy_that_takes_idle_gpus_alone_is_named() -> None:
    state = fleet(cards(1))
    use(state, "n0", 0)
    request = msgspec.structs.replace(pod(DeviceRequest(1, memory_mib=1)), gpu_policy=(GpuPolicy.MUTEX,))
    refusals = Evaluator(state).evaluate(request, ["n0"]).refusals
    said = explain(refusals, request, state, idle_only=True).removeprefix(LEAD)
    assert said == "1 GPU on 1 node is in use, and policy mutex wants an idle GPU"


def test_one_gpu_is_spoken_of_in_the_singular() -> None:
    state = fleet(cards(1))
    assert why(state, DeviceRequest(2, memory_mib=1)) == ("1 GPU on 1 node is available, but 2 are needed on one node")


def test_numa_binding_is_not_blamed_on_memory() -> None:
    two_and_two = tuple(msgspec.structs.replace(d, numa_nodes=(d.index // 2,)) for d in cards(4))
    state = fleet(two_and_two)
    assert why(state, DeviceRequest(3, memory_mib=1000, numa_bind=True)) == (
        "4 GPUs on 1 node are available, but 3 are needed on one NUMA node"
    )


def test_the_models_that_there_are_stand_beside_the_one_that_is_wanted() -> None:
    state = fleet(*(cards(1, model=f"M{number}") for number in range(6)))
    assert why(state, DeviceRequest(1, memory_mib=1, models_allowed=("H100", "H200"))) == (
        "6 GPUs on 6 nodes do not match the pod's request: a model with H100 or H200 "
        "(available: M0, M1, M2, M3 and 2 more)"
    )


def test_what_does_not_enforce_a_pod_that_requires_it_is_named() -> None:
    state = fleet(cards(2, enforcement=Enforcement.TIME_SLICING), cards(1, enforcement=Enforcement.HAMI_CORE))
    use(state, "n1", 0, memory_mib=15000)
    asked = DeviceRequest(1, memory_mib=1000, held_by=(Enforcement.MIG, Enforcement.MPS, Enforcement.HAMI_CORE))
    assert why(state, asked) == (
        "2 GPUs on 1 node do not enforce the pod's share, but the pod requires enforcement (available: time-slicing; "
        "required: mig, mps or hami-core); 1 GPU on 1 node has less than 1000 MiB of memory free (most: 360 MiB)"
    )


def test_denied_models_and_modes_are_named() -> None:
    state = fleet(cards(1))
    assert why(state, DeviceRequest(1, memory_mib=1, models_denied=("T4",))) == (
        "1 GPU on 1 node does not match the pod's request: no T4 (available: Tesla T4)"
    )
    assert why(state, DeviceRequest(1, memory_mib=1, modes_allowed=(DeviceMode.MIG,))) == (
        "1 GPU on 1 node does not match the pod's request: mode mig (available: Tesla T4, mode hami-core)"
    )


def test_what_ails_a_gpu_is_shown_with_its_index_unless_the_pods_uuids_rule_it_out() -> None:
    well, ill = cards(2)
    ill = msgspec.structs.replace(ill, healthy=False, unhealthy_reason="Xid 79: GPU has fallen off the bus")
    state = fleet((well, ill))
    use(state, "n0", 0)
    assert why(state, WHOLE) == (
        "1 GPU on 1 node is in use, and the pod wants a whole GPU; "
        "1 GPU on 1 node is unhealthy (GPU 1: Xid 79: GPU has fallen off the bus)"
    )
    for words in ({"uuids_allowed": ("n0-0",)}, {"uuids_denied": ("n0-1",)}):
        told = why(state, msgspec.structs.replace(WHOLE, **words))
        assert "1 GPU on 1 node is unhealthy" in told
        assert "Xid 79" not in told


def test_the_container_is_named_where_there_are_several() -> None:
    state = fleet(cards(1))
    little, much = DeviceRequest(1, memory_mib=100), DeviceRequest(1, memory_mib=99_999)
    assert why(state, little, much).startswith("container c1: 1 GPU on 1 node is too small for 99999 MiB")


def test_a_quota_that_is_exceeded_is_all_there_is_to_say() -> None:
    state, request = fleet(cards(1)), pod(DeviceRequest(1, memory_mib=1000))
    refusals = Evaluator(state).evaluate(request, ["n0"], QuotaLimits(500)).refusals
    assert explain(refusals, request, state, "exceeded quota: q, ...") == "exceeded quota: q, ..."


HALVES = DeviceRequest(2, memory_percent=50, cores_percent=10)


@pytest.mark.parametrize(
    ("left", "asked", "demand"),
    [
        pytest.param(QuotaLimits(30_000), (WHOLE,), Demand(40_960), id="a whole GPU: the smallest that is too large"),
        pytest.param(QuotaLimits(5_000), (HALVES,), Demand(15_360, 20), id="part of two GPUs, on the smallest"),
        pytest.param(
            QuotaLimits(100), (WHOLE, HALVES), Demand(30_720, 20), id="the sum of containers that run together"
        ),
        pytest.param(QuotaLimits(None, 10), (HALVES,), Demand(15_360, 20), id="compute is the same on all GPUs"),
        pytest.param(
            QuotaLimits(100), (DeviceRequest(1, memory_mib=200),), Demand(200), id="MiB as they are asked for"
        ),
    ],
)
def test_what_a_quota_refuses_is_in_mib_for_memory_in_percent_too(
    left: QuotaLimits, asked: tuple[DeviceRequest, ...], demand: Demand
) -> None:
    """T4: 15360 MiB, so that a quota of 30000 MiB has room for one and for no A100."""
    mixed = fleet(cards(2), cards(2, "A100", 40_960), cards(2, "H100", 81_920))
    names = [node.name for node in mixed]
    request = pod(*asked)
    refusals = Evaluator(mixed).evaluate(request, names, left).refusals
    assert refusals
    assert demand_over_quota(refusals, request, mixed, left) == demand


@pytest.mark.parametrize("word", ["NVIDIA-Tesla T4", "nvidia", "tesla t4", "=Tesla T4"])
def test_models_are_named_as_hami_registers_them(word: str) -> None:
    request = pod(DeviceRequest(1, memory_mib=1, models_allowed=(word,)))
    assert Evaluator(fleet(cards(1))).evaluate(request, ["n0"]).fits == ["n0"]
    denied = pod(DeviceRequest(1, memory_mib=1, models_denied=(word,)))
    assert Evaluator(fleet(cards(1))).evaluate(denied, ["n0"]).fits == []


def test_every_reason_has_words() -> None:
    said = [wordings(reason) for reason in Reason]
    assert all(said)
    assert ["are in use, and policy mutex wants idle GPUs" in each for each in said].count(True) == 1


@pytest.mark.parametrize(
    "asked",
    [
        DeviceRequest(1, memory_mib=100),
        DeviceRequest(1, memory_percent=50),
        DeviceRequest(1, memory_percent=100, cores_percent=30),
        DeviceRequest(1, memory_percent=1, cores_percent=100),
    ],
    ids=str,
)
def test_amounts_of_gpus_of_unknown_memory_are_refused_with_that_reason(asked: DeviceRequest) -> None:
    state = fleet(cards(1, "NVIDIA GB10", 0, slots=1, mode=DeviceMode.WHOLE))
    assert "an amount of memory, which the driver of these GPUs does not report (ask for whole GPUs instead)" in why(
        state, asked
    )


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            DeviceRequest(2, cores_percent=100),
            "request: 2 replicas, but the node's configuration file sets failRequestsGreaterThanOne",
        ),
        (
            DeviceRequest(3),
            "request: 3 replicas, but the node's configuration file sets failRequestsGreaterThanOne: ask for 1",
        ),
        (DeviceRequest(4, memory_percent=100), "request: 4 replicas, but the node's configuration file sets"),
        (DeviceRequest(1, memory_mib=100), "request: an amount of memory or compute, but these GPUs are shared in"),
    ],
    ids=str,
)
def test_why_replicas_do_not_do_is_named(asked: DeviceRequest, says: str) -> None:
    for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"):
        parts = {"replicas": 4, "one_each": True, "mode": DeviceMode.TIME_SLICING, "resource": name}
        state = fleet(cards(1, "T4", 16_384, slots=4, **parts))
        assert says in why(state, msgspec.structs.replace(asked, resource=name))


def test_uuids_that_no_node_has_are_named() -> None:
    state = fleet(cards(2), cards(1))
    both = why(state, DeviceRequest(1, memory_mib=100, uuids_allowed=("GPU-gone", "n9-0")))
    assert both.endswith("excluded by the UUIDs that the pod names (no node has GPU-gone or n9-0)")
    there = why(state, DeviceRequest(1, memory_mib=100_000, uuids_allowed=("n0-0",)))
    assert "no node has" not in there and "excluded by the UUIDs that the pod names" in there


def test_uuids_that_no_node_has_are_known_without_a_look_at_all_nodes() -> None:
    """A pod that fits nowhere is tried again and again, in clusters with thousands of nodes."""
    state = fleet(cards(2), cards(2))
    evaluator, request = Evaluator(state), pod(DeviceRequest(1, memory_mib=100_000, uuids_allowed=("n1-0", "n9-0")))

    def said() -> str:
        refusals = evaluator.evaluate(request, ["n0", "n1"]).refusals
        slowly = explain(refusals, request, state)
        with patch.object(Fleet, "names", side_effect=AssertionError("all nodes are looked through")):
            assert explain(refusals, request, state, lists=evaluator.lists) == slowly
        return slowly

    assert "no node has n9-0" in said()
    state.remove_node("n1")
    assert "no node has n1-0 or n9-0" in said()
    state.set_inventory(NodeInventory("n1", cards(1, "n9")))
    assert "no node has n1-0)" in said()
