"""A pod on many nodes: what is computed once, ranks, and the sentence when none fits."""

import importlib

import msgspec
import pytest

from purser.core.fleet import Fleet
from purser.core.grant.quota import QuotaLimits
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Grant,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement import (
    Authority,
    Evaluation,
    Evaluator,
    Placement,
    PolicySettings,
    Reason,
    best,
    best_nodes,
    rank,
)
from purser.core.placement.mix import Mix
from purser.core.placement.shape import largest_shape

evaluate_module = importlib.import_module("purser.core.placement.evaluate")
arrays_module = importlib.import_module("purser.core.fleet.arrays")

BINPACK = PolicySettings(NodePolicy.BINPACK)


def fleet(nodes: int, cards: int = 2, memory: int = 8192) -> Fleet:
    built = Fleet()
    for n in range(nodes):
        devices = tuple(Device(f"n{n}-{i}", i, "NVIDIA", memory, slots=4) for i in range(cards))
        built.set_inventory(NodeInventory(f"n{n}", devices))
    return built


def use(state: Fleet, node: str, memory: int, card: int = 0) -> None:
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(f"{node}-{card}", memory, 0),))
    state.ledger.reserve(Grant(f"on-{node}", "ns", "p", node, (part,)))


def pod(memory: int = 1024, count: int = 1, **more: object) -> PodRequest:
    request = msgspec.structs.replace(DeviceRequest(count, memory_mib=memory), **more)
    return PodRequest("u", "ns", "p", (ContainerRequest("c", ContainerKind.APP, request),))


def evaluate(state: Fleet, request: PodRequest, names: list[str], policy: PolicySettings = BINPACK) -> Evaluation:
    return Evaluator(state, policy).evaluate(request, names)


def ranks(evaluation: Evaluation, policy: PolicySettings) -> dict[str, int]:
    return dict(zip(evaluation.fits, rank(evaluation, policy), strict=True))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that were looked at one by one."""
    names: list[str] = []
    original = evaluate_module.decide

    def counting(node, *rest):  # type: ignore[no-untyped-def]
        names.append(node.name)
        return original(node, *rest)

    monkeypatch.setattr(evaluate_module, "decide", counting)
    return names


def of_two_containers() -> PodRequest:
    part = pod().containers[0]
    return msgspec.structs.replace(pod(), containers=(part, msgspec.structs.replace(part, name="d")))


def test_no_node_is_looked_at_by_itself_for_a_request_that_is_a_size(decided: list[str]) -> None:
    state = fleet(50)
    use(state, "n7", 100)
    assert len(evaluate(state, pod(), state.names()).fits) == 50
    assert evaluate(state, pod(uuids_allowed=("n1-0",)), state.names()).fits == ["n1"]
    assert not evaluate(state, pod(9000), state.names()).fits
    assert not decided


def test_of_nodes_that_must_be_looked_at_equal_ones_cost_one_decision(decided: list[str]) -> None:
    state = fleet(50)
    use(state, "n7", 100)
    evaluator = Evaluator(state, BINPACK)
    for uid in "abc":
        request = msgspec.structs.replace(of_two_containers(), uid=uid, name=uid)
        assert len(evaluator.evaluate(request, state.names()).fits) == 50
    assert len(decided) == 2
    state.ledger.release("on-n7")
    use(state, "n7", 200)
    evaluator.evaluate(of_two_containers(), state.names())
    assert decided[2:] == ["n7"]


def test_nodes_on_which_one_container_has_no_room_need_not_be_looked_at(decided: list[str]) -> None:
    state = fleet(3)
    use(state, "n1", 8000)
    use(state, "n2", 8000)
    part = pod(8192, 2).containers[0]
    request = msgspec.structs.replace(pod(), containers=(pod().containers[0], msgspec.structs.replace(part, name="d")))
    evaluation = evaluate(state, request, state.names())
    assert decided == ["n0"]
    assert {name: refusal.container for name, refusal in evaluation.refusals.items()} == {
        "n0": "d",
        "n1": "d",
        "n2": "d",
    }


def test_the_same_request_is_evaluated_again_where_nodes_have_come_and_gone() -> None:
    state = fleet(3)
    evaluator, asked = Evaluator(state, BINPACK), ["n0", "n1", "n2", "n3"]
    assert evaluator.evaluate(pod(), asked).fits == ["n0", "n1", "n2"]
    moved = fleet(4).node("n3")
    assert moved is not None
    state.remove_node("n0")
    state.set_inventory(moved.inventory)  # in the row that n0 had
    assert evaluator.evaluate(pod(), asked).fits == ["n1", "n2", "n3"]
    asked.remove("n1")
    assert evaluator.evaluate(pod(), asked).fits == ["n2", "n3"]


def test_the_best_of_many_are_ordered_where_they_are_equal() -> None:
    state = fleet(5)
    for node, memory in (("n1", 2048), ("n4", 4096)):
        use(state, node, memory)
    found = evaluate(state, pod(), ["n3", "n4", "n2", "n1", "n0"])
    assert [best_nodes(found, most).fits for most in (1, 2, 3, 4, 9)] == [
        ["n4"],
        ["n4", "n1"],
        ["n3", "n4", "n1"],
        ["n3", "n4", "n2", "n1"],
        ["n3", "n4", "n2", "n1", "n0"],
    ]


def test_a_verdict_is_not_carried_over_to_another_quota() -> None:
    state = fleet(1)
    evaluator = Evaluator(state, BINPACK)
    for left, fits in ((QuotaLimits(500), False), (QuotaLimits(5000), True), (QuotaLimits(500), False)):
        assert bool(evaluator.evaluate(pod(1024), ["n0"], left).fits) is fits


def test_what_one_numa_node_lacks_comes_before_what_the_quota_lacks() -> None:
    state = Fleet()
    devices = tuple(Device(f"n0-{i}", i, "NVIDIA", 8192, slots=4, numa_nodes=(i,)) for i in range(2))
    state.set_inventory(NodeInventory("n0", devices))
    asked = pod(1024, 2, numa_bind=True)
    for left, reason in ((QuotaLimits(1500), Reason.NUMA_NOT_FIT), (QuotaLimits(500), Reason.QUOTA_NOT_FIT)):
        refusal = Evaluator(state, BINPACK).evaluate(asked, ["n0"], left).refusals["n0"]
        assert refusal.counts == ((reason, 2),)


def test_the_shapes_that_were_not_asked_for_the_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate_module, "_MAX_VERDICTS", 8)
    state = fleet(1)
    evaluator = Evaluator(state, BINPACK)
    for memory in range(1, 20):
        evaluator.evaluate(pod(memory), state.names())
    assert len(evaluator._verdicts) == 8


@pytest.mark.gate
def test_states_that_no_node_has_any_more_are_forgotten(decided: list[str]) -> None:
    state = fleet(2)
    evaluator = Evaluator(state, BINPACK)
    for memory in range(2000):
        state.ledger.release("on-n0")
        use(state, "n0", memory)
        evaluator.evaluate(of_two_containers(), state.names())
    (verdicts,) = evaluator._judged._by_shape._entries.values()
    assert len(verdicts) < 1100
    assert decided.count("n1") == 1


def test_a_node_without_inventory_is_refused_for_good() -> None:
    evaluation = evaluate(fleet(1), pod(), ["n0", "cpu-only"])
    refusal = evaluation.refusals["cpu-only"]
    assert (refusal.message, refusal.resolvable) == ("node unregistered", False)
    assert evaluation.fits == ["n0"]


def test_a_node_that_went_and_came_back_is_what_it_is_now() -> None:
    state = fleet(3)
    evaluator = Evaluator(state, BINPACK)
    evaluator.evaluate(pod(), state.names())
    state.remove_node("n1")
    assert evaluator.evaluate(pod(), ["n0", "n1", "n2"]).fits == ["n0", "n2"]
    state.set_inventory(NodeInventory("n1", (Device("other", 0, "NVIDIA", 512, slots=4),)))
    assert evaluator.evaluate(pod(), ["n0", "n1", "n2"]).refusals["n1"].message == "1/1 CardInsufficientMemory"
    assert evaluator.evaluate(pod(100, uuids_allowed=("other",)), ["n0", "n1"]).fits == ["n1"]
    assert evaluator.evaluate(pod(100, uuids_allowed=("n1-0",)), ["n0", "n1"]).fits == []


def test_a_model_with_the_number_of_a_removed_one_is_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays_module, "MAX_NUMBERED_MODELS", 1)
    state, request = fleet(2), pod(1024)
    mix = Mix.of({largest_shape(request): 3.0, largest_shape(pod(1500)): 1.0})
    evaluator = Evaluator(state, PolicySettings(), mix)
    for model, memory in (("T4", 2048), ("A100", 4096), ("T4", 2048)):
        state.set_inventory(NodeInventory("n1", (Device("n1-0", 0, model, memory, slots=4),)))
        found = evaluator.evaluate(request, state.names()).scores
        anew = Evaluator(state, PolicySettings(), mix).evaluate(request, state.names()).scores
        assert found.tolist() == anew.tolist()


def test_what_the_pod_holds_itself_does_not_stand_in_its_way() -> None:
    state = fleet(2, cards=1)
    use(state, "n0", 8000)
    own = state.ledger.grant("on-n0")
    evaluator = Evaluator(state, BINPACK)
    assert evaluator.evaluate(pod(8000), ["n0", "n1"]).fits == ["n1"]
    evaluation = evaluator.evaluate(pod(8000), ["n0", "n1"], own=own)
    assert (evaluation.fits, dict(evaluation.refusals), len(evaluation.scores)) == (["n0", "n1"], {}, 2)


def three_levels() -> Fleet:
    state = fleet(4)
    for name, memory in (("n1", 1000), ("n2", 2000), ("n3", 2000)):
        use(state, name, memory)
    return state


@pytest.mark.parametrize(
    ("node_policy", "expected"),
    [
        (NodePolicy.BINPACK, {"n0": 0, "n1": 5, "n2": 10, "n3": 10}),
        (NodePolicy.SPREAD, {"n0": 10, "n1": 5, "n2": 0, "n3": 0}),
    ],
)
def test_shared_authority_lays_ranks_over_the_whole_range(node_policy: NodePolicy, expected: dict[str, int]) -> None:
    policy = PolicySettings(node_policy)
    assert ranks(evaluate(three_levels(), pod(), ["n0", "n1", "n2", "n3"], policy), policy) == expected


def test_exclusive_authority_scores_only_the_best_first_by_name() -> None:
    policy = PolicySettings(NodePolicy.BINPACK, authority=Authority.EXCLUSIVE)
    evaluation = evaluate(three_levels(), pod(), ["n3", "n2", "n1", "n0"], policy)
    assert ranks(evaluation, policy) == {"n3": 0, "n2": 10, "n1": 0, "n0": 0}
    assert best(evaluation) == "n2"


def test_the_pods_own_node_policy_wins() -> None:
    request = msgspec.structs.replace(pod(), node_policy=NodePolicy.SPREAD)
    assert best(evaluate(three_levels(), request, ["n0", "n1", "n2"])) == "n0"


def test_equal_nodes_all_score_best() -> None:
    state = fleet(3)
    assert set(rank(evaluate(state, pod(), state.names()))) == {10}


def test_nothing_fits_nothing_is_ranked() -> None:
    evaluation = evaluate(fleet(1), pod(9000), ["n0"])
    assert (rank(evaluation), best(evaluation)) == ([], None)


def test_the_default_policy_says_in_a_sentence_why_it_chose() -> None:
    evaluator = Evaluator(fleet(2), PolicySettings())
    placement = evaluator.place("n1", pod())
    assert isinstance(placement, Placement)
    assert evaluator.why(pod(), placement) == "tightest fit, because no other pods are known yet"


def test_of_several_containers_the_sentence_is_about_the_one_that_asks_for_the_most() -> None:
    cards = (Device("small", 0, "NVIDIA", 8192, slots=4), Device("large", 1, "NVIDIA", 16384, slots=4))
    state = Fleet()
    state.set_inventory(NodeInventory("n", cards))
    containers = [
        ContainerRequest(name, ContainerKind.APP, DeviceRequest(1, memory_mib=memory))
        for name, memory in (("little", 1024), ("much", 12288))
    ]
    request, evaluator = PodRequest("u", "ns", "p", tuple(containers)), Evaluator(state)
    placement = evaluator.place("n", request)
    assert isinstance(placement, Placement)
    assert [share.uuid for part in placement.containers for share in part.shares] == ["small", "large"]
    assert evaluator.why(request, placement)
