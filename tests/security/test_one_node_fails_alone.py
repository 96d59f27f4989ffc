"""Whatever part of a round fails on a node, unexpectedly: the round is that of all others, and names the node."""

import random
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import msgspec
import pytest

from purser.core.names import UPGRADE_STATE_LABEL
from purser.operator.deciding import isolation as module
from purser.operator.deciding import nodes_to_inspect, reconcile
from purser.operator.deciding.isolation import decided
from purser.operator.model import Delete, DeletePod, Evict, NodeView, PatchNode, RoundOutcome, Snapshot, WriteStatus
from tests.tiers import IS_LONG, some
from tests.unit.operator.world import World

STAGES = {
    "presence": "gates.facts.has_gpu",
    "facts": "gates.facts.facts_of",
    "operating system": "gates.facts.os_of",
    "runtime": "gates.facts.runtime_of",
    "users' words": "gates.facts.user_override",
    "place": "gates.assignment._assignment",
    "standing": "gates.progress._progress",
    "operand": "gates.progress._on_node",
    "pods that are looked into": "upgrade.states.needs_workloads",
    "whether an upgrade is under way": "upgrade.states.state_of",
    "whether it is unavailable": "upgrade.budget.takes_no_pods",
    "turn": "upgrade.budget.order",
    "upgrade": "upgrade.machine.next_step",
    "beginning": "upgrade.machine.begin",
    "MIG": "mig.machine.next_step",
    "MIG's record": "mig.states.current_change",
    "gates": "gates.labels.gate_patch",
    "the write": "model.outcome.merged",
    "status": "deciding.status.is_complete",
    "causes": "deciding.failing._causes",
    "cleaning up": "gates.labels.removal_patch",
}
SPEC = {"driver": {"version": "1.0", "upgradePolicy": {"autoUpgrade": True}}, "migManager": {"enabled": True}}
NAMES = ("n1", "n2", "n3", "n4", "n5") if IS_LONG else ("n1", "n2", "n3")


def fail(patch: pytest.MonkeyPatch, stage: str, bad: frozenset[str]) -> None:
    """From now on this function fails on these nodes, wherever it was imported."""
    where, _, name = STAGES[stage].rpartition(".")
    original: Callable[..., Any] = getattr(sys.modules[f"purser.operator.{where}"], name)

    def fails(*args: Any, **kwargs: Any) -> Any:
        if any(_name(each) in bad for each in args):
            raise ZeroDivisionError("x" * 10_000)
        return original(*args, **kwargs)

    for each in [each for key, each in sys.modules.items() if key.startswith("purser.operator")]:
        for key, value in list(vars(each).items()):
            if value is original:
                patch.setattr(each, key, fails)


def _name(value: Any) -> str:
    node = getattr(value, "node", value)
    return node.name if isinstance(node, NodeView) else ""


def world_at(rounds: int, parallel: int, unavailable: int | str) -> World:
    """A cluster that has had so many rounds since its policy asked for another driver."""
    world = deepcopy(settled(parallel, unavailable))
    for _ in range(rounds):
        world.round()
        world.tick()
    return world


@cache
def settled(parallel: int, unavailable: int | str) -> World:
    world = World()
    limits = {"maxParallelUpgrades": parallel, "maxUnavailable": unavailable, "autoUpgrade": True}
    spec = SPEC | {"driver": {"version": "1.0", "upgradePolicy": limits}}
    world.add_policy(spec=spec)
    for name in NAMES:
        world.add_node(name)
    world.settle()
    world.change_policy(spec | {"driver": {"version": "2.0", "upgradePolicy": limits}})
    return world


def about(outcome: RoundOutcome) -> dict[str, list[Any]]:
    """By node: what is done to it."""
    found: dict[str, list[Any]] = {}
    for action in outcome.actions:
        match action:
            case PatchNode(node=node) | DeletePod(pod=PodOf(node=node)) | Evict(workload=PodOf(node=node)):
                found.setdefault(node, []).append(action)
            case _:
                pass
    return found


class _HasNode(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return hasattr(instance, "node")


class PodOf(metaclass=_HasNode):
    """Any pod, of an operand or not."""

    node: str


def failing(outcome: RoundOutcome) -> dict[str, str]:
    statuses = [each.status for each in outcome.actions if isinstance(each, WriteStatus)]
    return {each.name: each.message for status in statuses for each in status.failing_nodes}


@pytest.mark.parametrize("stage", STAGES)
def test_a_round_that_fails_on_a_node_is_that_of_all_others(stage: str) -> None:
    chance = random.Random(stage)
    world = world_at(chance.randrange(12), 5, "100%")
    snapshot, bad = world.snapshot(), chance.choice(NAMES)
    whole = reconcile(snapshot)
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, stage, frozenset({bad}))
        nodes_to_inspect(snapshot)
        outcome = reconcile(snapshot)
    if not outcome.isolated:
        assert outcome == whole, "it was not asked"
        return
    assert [each.node.name for each in outcome.isolated] == [bad]
    assert "ZeroDivisionError" in failing(outcome)[bad] and len(failing(outcome)[bad]) < 300
    assert bad not in about(outcome)
    expected = about(whole)
    expected.pop(bad, None)
    assert about(outcome) == expected
    assert not [each for each in outcome.actions if isinstance(each, Delete)]


@pytest.mark.parametrize(
    ("stage", "rounds"),
    some([("standing", 1), ("whether an upgrade is under way", 4), ("upgrade", 3), ("the write", 6)], 2),
)
def test_a_node_that_is_left_out_keeps_its_place_among_those_that_may_be_upgraded(stage: str, rounds: int) -> None:
    world = world_at(rounds, 1, 1)
    at_rest = ("", "upgrade-required", "upgrade-done", "upgrade-failed")
    begun = [name for name in NAMES if world.nodes[name].labels.get(UPGRADE_STATE_LABEL, "") not in at_rest]
    bad = begun[0] if begun else NAMES[0]
    before = world.nodes[bad]
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, stage, frozenset({bad}))
        for _ in range(10 if begun else 14 * len(NAMES)):  # others take 14 each
            world.round()
            world.tick()
            at_it = [n for n in NAMES if world.nodes[n].labels.get(UPGRADE_STATE_LABEL, "") not in at_rest]
            assert len(at_it) <= 1
            assert sum(node.unschedulable for node in world.nodes.values()) <= 1
    assert world.nodes[bad].labels == before.labels
    others = [name for name in NAMES if name != bad]
    done = [world.nodes[name].labels.get(UPGRADE_STATE_LABEL) == "upgrade-done" for name in others]
    assert all(done) or begun, "nobody else waits for a node that is as it was"
    assert world.condition("Degraded")["status"] == "True"
    world.settle()
    assert world.condition("Ready")["status"] == "True", "and it goes on where it was"


def test_a_policy_that_leaves_waits_for_a_node_that_it_fails_on() -> None:
    world = world_at(0, 1, 1)
    world.delete_policy()
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, "cleaning up", frozenset({"n2"}))
        for _ in range(12):
            world.round()
            world.tick()
        assert "node n2: internal error, node left unchanged" in world.condition("Ready")["message"]
        assert world.pod("n2", "driver") is not None
        assert world.pod("n1", "driver") is None
    world.settle()
    assert not world.policies


def test_what_fails_without_any_node_is_no_nodes_fault() -> None:
    world = world_at(0, 1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["purser.operator.deciding.reconcile"], "render", lambda wanted: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            world.round()


def empty(count: int, **more: Any) -> Snapshot:
    nodes = tuple(NodeView(name=f"n{number}") for number in range(count))
    return Snapshot(now=0, namespace="x", purser_image="y", nodes=nodes, **more)


@pytest.mark.parametrize("seed", range(8))
def test_all_nodes_that_fail_are_found_round_by_round_however_many(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice((1, 2, 7, 60))
    bad = {f"n{number}" for number in range(count) if chance.random() < chance.choice((0.01, 0.1, 0.5, 1))} | {"n0"}
    tries = 0

    def decide(snapshot: Snapshot) -> int:
        nonlocal tries
        tries += 1
        if any(node.name in bad for node in snapshot.nodes):
            raise KeyError
        return 7

    suspects: tuple[str, ...] = ()
    for _ in range(12):
        tries = 0
        found, seen = decided(empty(count, suspects=suspects), decide)
        assert found == 7 and tries <= module.MAX_ISOLATION_ROUNDS + 2
        isolated = {each.node.name for each in seen.isolated}
        assert bad <= isolated
        suspects = tuple(each.node.name for each in sorted(seen.isolated, key=lambda each: each.error is not None))
    assert isolated == bad


def test_nodes_that_fail_only_together_are_reported_separately() -> None:
    def decide(snapshot: Snapshot) -> None:
        if {"n3", "n40"} <= {node.name for node in snapshot.nodes}:
            raise KeyError

    _, seen = decided(empty(64), decide)
    assert [each.node.name for each in seen.isolated] == ["n40"]
    assert msgspec.structs.replace(seen, isolated=()).nodes[3].name == "n3"
