"""A pod on many nodes: shared verdicts, ranks, and the sentence when none fits."""

import importlib

import msgspec
import pytest

from purser.core.fleet import Fleet
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
from purser.core.placement import Authority, Policy, VerdictCache, best, evaluate, explain, rank
from purser.core.quota import Room

evaluate_module = importlib.import_module("purser.core.placement.evaluate")


def fleet(nodes: int, cards: int = 2, memory: int = 8192) -> Fleet:
    built = Fleet()
    for n in range(nodes):
        devices = tuple(Device(f"n{n}-{i}", i, "NVIDIA", memory, slots=4) for i in range(cards))
        built.set_inventory(NodeInventory(f"n{n}", devices))
    return built


def use(state: Fleet, node: str, memory: int) -> None:
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(f"{node}-0", memory, 0),))
    state.ledger.reserve(Grant(f"on-{node}", "ns", "p", node, (part,)))


def pod(memory: int = 1024, count: int = 1, **more: object) -> PodRequest:
    request = msgspec.structs.replace(DeviceRequest(count, memory_mib=memory), **more)
    return PodRequest("u", "ns", "p", (ContainerRequest("c", ContainerKind.APP, request),))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes on which the kernel really decided."""
    names: list[str] = []
    original = evaluate_module.decide

    def counting(node, *rest):  # type: ignore[no-untyped-def]
        names.append(node.name)
        return original(node, *rest)

    monkeypatch.setattr(evaluate_module, "decide", counting)
    return names


def test_equal_nodes_cost_one_decision(decided: list[str]) -> None:
    state = fleet(50)
    use(state, "n7", 100)
    evaluation = evaluate(state, pod(), state.names())
    assert len(evaluation.fits) == 50
    assert len(decided) == 2


def test_a_cache_carries_verdicts_over_to_the_next_pod_until_a_node_changes(decided: list[str]) -> None:
    state, cache = fleet(50), VerdictCache()
    for uid in "abc":
        evaluate(state, msgspec.structs.replace(pod(), uid=uid, name=uid), state.names(), cache=cache)
    assert len(decided) == 1
    use(state, "n7", 100)
    evaluate(state, pod(), state.names(), cache=cache)
    assert decided[1:] == ["n7"]


def test_another_request_is_another_verdict() -> None:
    state, cache = fleet(2), VerdictCache()
    assert evaluate(state, pod(1024), state.names(), cache=cache).fits
    assert not evaluate(state, pod(9000), state.names(), cache=cache).fits


def test_a_verdict_is_not_carried_over_to_another_quota() -> None:
    state, cache = fleet(1), VerdictCache()
    for room, fits in ((Room(500), False), (Room(5000), True), (Room(500), False)):
        assert bool(evaluate(state, pod(1024), ["n0"], left=room, cache=cache).fits) is fits


def test_the_cache_forgets_the_oldest_shapes() -> None:
    state, cache = fleet(1), VerdictCache()
    for memory in range(VerdictCache.MAX_SHAPES + 10):
        evaluate(state, pod(memory), state.names(), cache=cache)
    assert len(cache._by_shape) == VerdictCache.MAX_SHAPES


def test_the_cache_forgets_states_that_no_node_has_any_more(decided: list[str]) -> None:
    state, cache = fleet(2), VerdictCache()
    for memory in range(2000):
        state.ledger.release("on-n0")
        use(state, "n0", memory)
        evaluate(state, pod(), state.names(), cache=cache)
    (verdicts,) = cache._by_shape.values()
    assert len(verdicts) < 1100
    assert decided.count("n1") == 1


def test_requests_that_name_uuids_are_judged_node_by_node(decided: list[str]) -> None:
    state = fleet(3)
    evaluation = evaluate(state, pod(uuids_allowed=("n1-0",)), state.names(), cache=VerdictCache())
    assert list(evaluation.fits) == ["n1"]
    assert len(decided) == 3


def test_a_node_without_inventory_is_refused_for_good() -> None:
    evaluation = evaluate(fleet(1), pod(), ["n0", "cpu-only"])
    refusal = evaluation.refusals["cpu-only"]
    assert (refusal.message, refusal.resolvable) == ("node unregistered", False)


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
    policy = Policy(node=node_policy)
    assert rank(evaluate(three_levels(), pod(), ["n0", "n1", "n2", "n3"], policy), policy) == expected


def test_exclusive_authority_scores_only_the_best_first_by_name() -> None:
    policy = Policy(authority=Authority.EXCLUSIVE)
    evaluation = evaluate(three_levels(), pod(), ["n3", "n2", "n1", "n0"], policy)
    assert rank(evaluation, policy) == {"n3": 0, "n2": 10, "n1": 0, "n0": 0}
    assert best(evaluation) == "n2"


def test_the_pods_own_node_policy_wins() -> None:
    request = msgspec.structs.replace(pod(), node_policy=NodePolicy.SPREAD)
    assert best(evaluate(three_levels(), request, ["n0", "n1", "n2"])) == "n0"


def test_equal_nodes_all_score_best() -> None:
    state = fleet(3)
    assert set(rank(evaluate(state, pod(), state.names())).values()) == {10}


def test_nothing_fits_nothing_is_ranked() -> None:
    evaluation = evaluate(fleet(1), pod(9000), ["n0"])
    assert (rank(evaluation), best(evaluation)) == ({}, None)


def test_the_sentence_counts_nodes_and_devices_per_reason() -> None:
    evaluation = evaluate(fleet(2, cards=8), pod(10240), ["n0", "n1", "cpu-only"])
    assert explain(evaluation.refusals) == (
        "0 of 3 nodes fit: 2 nodes: 16 devices have less than 10240 MiB free (most: 8192 MiB); 1 node has no inventory"
    )


def test_the_sentence_speaks_of_one_device_in_the_singular() -> None:
    evaluation = evaluate(fleet(1, cards=1), pod(count=2), ["n0"])
    assert explain(evaluation.refusals) == "0 of 1 node fit: 1 node: 1 device suits, 2 are needed on one node"


def test_every_reason_has_words() -> None:
    from purser.core.placement.explain import _OF_DEVICES, _OF_NODES
    from purser.core.placement.reasons import Reason

    assert set(_OF_DEVICES) | set(_OF_NODES) == set(Reason)
