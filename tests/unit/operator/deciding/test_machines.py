"""Driver upgrades and MIG changes as the whole kernel does them: pauses, order, and one write per node."""

from typing import Any

import pytest
from tests.unit.operator.world import World, settled_world

from purser.operator.mig import GPU_CLIENTS
from purser.operator.mig import pause_of as mig_pause
from purser.operator.model import Action, DeletePod, EmitEvent, NodeWorkload, PatchNode, WriteStatus, patched
from purser.operator.order import Operand, dependents
from purser.operator.reasons import OperatorReason
from purser.operator.upgrade import pause_of as upgrade_pause

NEW = {"driver": {"version": "600.1.1", "upgradePolicy": {"maxParallelUpgrades": 1, "maxUnavailable": "50%"}}}
STATE = "nvidia.com/gpu-driver-upgrade-state"


@pytest.fixture
def world() -> World:
    found = settled_world("a", "b", "c", **{"nvidia.com/mig.capable": "true"})
    found.history.clear()
    return found


def job(node: str, uid: str = "job") -> NodeWorkload:
    return NodeWorkload(namespace="ml", name=uid, uid=uid, node=node, uses_gpu=True, controller="Job")


def test_a_driver_goes_only_when_nothing_on_its_node_needs_it(world: World) -> None:
    found: list[str] = []

    def look(action: Action) -> None:
        if isinstance(action, DeletePod) and action.pod.operand == Operand.DRIVER:
            found.extend(pod.operand for pod in world.on(action.pod.node) if pod.operand in dependents(Operand.DRIVER))
            assert world.nodes[action.pod.node].unschedulable
            assert not [each for each in world.workloads.values() if each.node == action.pod.node]

    world.watchers.append(look)
    world.workloads["job"] = job("b")
    world.change_policy(NEW)
    world.settle()
    assert found == []
    assert world.status()["upgrade"]["done"] == 3
    assert world.status()["state"] == "ready"
    assert not any(node.unschedulable for node in world.nodes.values())
    assert [world.condition(each)["reason"] for each in ("Ready", "Degraded")] == [
        OperatorReason.OPERANDS_READY,
        OperatorReason.NO_FAILURES,
    ]


def test_an_upgrade_that_begins_is_an_event_on_its_node(world: World) -> None:
    world.change_policy(NEW)
    events: list[EmitEvent] = []
    for _ in range(20):
        events += [each for each in world.round().events if each.name == "a"]
        world.tick()
    assert (events[0].reason, events[0].warning) == (OperatorReason.DRIVER_UPGRADE, False)
    assert events[0].message.startswith("driver upgrade to ") and events[0].message.endswith(" begins")


def test_of_a_validation_that_is_older_than_the_driver_the_status_says_so(world: World) -> None:
    world.restart_driver("a")
    world.settle()
    assert OperatorReason.VALIDATION_OUTDATED in _reasons_of(world, Operand.VALIDATOR)


def _reasons_of(world: World, operand: Operand) -> set[str]:
    """Those that the status has had of an operand."""
    statuses = (each.status for each in world.history if isinstance(each, WriteStatus))
    return {each.reason for status in statuses for each in status.operands if each.name == operand}


def test_a_state_and_what_it_pauses_are_one_write(world: World) -> None:
    """Whoever dies in between leaves no node whose driver goes under operands that need it."""

    def look(action: Action) -> None:
        if not isinstance(action, PatchNode):
            return
        node = patched(world.nodes[action.node], action)
        open_ones = {each for each in Operand if node.labels.get(each.deploy_label) == "true"}
        if upgrade_pause(node):
            assert not open_ones & set(dependents(Operand.DRIVER))
        if mig_pause(node):
            assert not open_ones & set(GPU_CLIENTS)

    world.watchers.append(look)
    world.label("b", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.change_policy(NEW)
    world.settle()
    assert world.status()["state"] == "ready"


def test_what_was_not_there_is_not_paused(world: World) -> None:
    world.add_node("d")
    world.crash("d", Operand.TOOLKIT)
    world.settle()
    seen: set[str] = set()
    world.watchers.append(lambda _: seen.update(world.deployed("d")))
    world.change_policy(NEW)
    world.run(80)
    assert seen == {"driver", "container-toolkit"}


def test_a_driver_that_does_not_work_halts_the_upgrade_and_resuming_goes_on(world: World) -> None:
    world.change_policy(NEW)
    world.run(8)
    world.crash("a", Operand.DRIVER)
    world.settle()
    world.wait(3600)
    world.settle()
    world.wait(3600)
    world.settle()
    assert world.status()["upgrade"]["halted"]
    assert [each["reason"] for each in world.status()["failingNodes"]] == [OperatorReason.UPGRADE_FAILED]
    degraded = world.condition("Degraded")
    assert degraded["reason"] == "DriverUpgradeHalted"
    cause = "the driver upgrade is halted: the new driver fails on 1 node: a: "
    assert degraded["message"] == cause + world.nodes["a"].annotations["purser.dev/driver-upgrade-failure"]
    assert world.nodes["a"].labels[STATE] == "upgrade-failed"
    assert len(world.deployed("c")) == 7
    world.heal("a", Operand.DRIVER)
    world.settle()
    assert world.status()["upgrade"]["done"] == 3
    assert world.status()["state"] == "ready"


def test_a_mig_change_pauses_what_uses_gpus_and_nothing_else(world: World) -> None:
    paused: set[str] = set()
    world.label("a", **{"nvidia.com/mig.config": "all-1g.5gb"})

    def look(_: Action) -> None:
        paused.update(name for name, value in world.deployed("a").items() if value.startswith("paused-for-mig"))

    world.watchers.append(look)
    world.settle()
    assert paused == {"device-plugin", "gpu-feature-discovery", "operator-validator", "dcgm-exporter"}
    assert {each.value for each in Operand if OperatorReason.PAUSED in _reasons_of(world, each)} == paused
    assert world.nodes["a"].labels["nvidia.com/mig.config.state"] == "success"
    assert set(world.deployed("a").values()) == {"true"}
    assert not world.nodes["a"].unschedulable


def test_p46_a_mig_change_that_fails_leaves_the_node_complete_and_named(world: World) -> None:
    world.mig_errors["a"] = "no such profile"
    world.label("a", **{"nvidia.com/mig.config": "all-9g.90gb"})
    world.settle()
    assert world.nodes["a"].labels["nvidia.com/mig.config.state"] == "failed"
    assert set(world.deployed("a").values()) == {"true"}
    (failing,) = world.status()["failingNodes"]
    assert (failing["name"], failing["operand"], failing["reason"]) == ("a", "mig-manager", "MigChangeFailed")
    assert "no such profile" in failing["message"]
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Degraded")["status"] == "True"


def test_a_mig_change_that_waits_is_reported_on_the_policy(world: World) -> None:
    world.set_node("c", unschedulable=True)
    world.label("a", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.settle()
    told = world.condition("Progressing")
    assert (told["status"], told["reason"]) == ("True", "MigChange")
    assert told["message"].startswith("node a: MIG layout all-1g.5gb: ")
    assert "maxUnavailable" in told["message"]
    assert world.condition("Ready")["status"] == "True"
    world.set_node("c", unschedulable=False)
    world.settle()
    assert world.nodes["a"].labels["nvidia.com/mig.config.state"] == "success"
    assert world.condition("Progressing")["reason"] == "Settled"


UNKNOWN_CARD = "the node's GPUs are not known to support MIG: if they do, set label nvidia.com/mig.capable=true"


@pytest.mark.parametrize(
    ("card", "layout", "spec", "why"),
    [
        pytest.param("1eb8", "all-1g.5gb", {}, "the node's GPUs do not support MIG", id="a T4"),
        pytest.param("1eb8", "all-disabled", {}, "", id="nothing is to be cut"),
        pytest.param("1eb8", "", {}, "", id="no word"),
        pytest.param("1eb8", "all-1g.5gb", {"migManager": {"enabled": False}}, "", id="nobody cuts here"),
        pytest.param("20b0", "all-1g.5gb", {}, "", id="an A100"),
        pytest.param("ffff", "all-1g.5gb", {}, UNKNOWN_CARD, id="nobody knows the card"),
    ],
)
def test_a_layout_that_is_not_possible_is_reported(card: str, layout: str, spec: dict[str, Any], why: str) -> None:
    world = World()
    world.add_policy(spec=spec)
    world.add_node("x", labels={"nvidia.com/mig.config": layout})
    world.cards["x"] = card
    world.settle()
    found = [(each["reason"], each["operand"], each["message"]) for each in world.status()["failingNodes"]]
    told = f"label nvidia.com/mig.config requests MIG layout all-1g.5gb, but {why}"
    assert found == ([("MigUnsupported", "mig-manager", told)] if why else [])
    assert world.condition("Ready")["status"] == "True", "its GPUs work"


def test_no_mig_change_is_under_way_while_a_driver_is_replaced(world: World) -> None:
    def look(action: Action) -> None:
        node = world.nodes["a"]
        upgrading = node.labels.get(STATE) not in ("upgrade-done", "upgrade-required", "validation-required", None)
        assert not (upgrading and "purser.dev/mig-step" in node.annotations), action

    world.watchers.append(look)
    world.label("a", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.change_policy(NEW)
    world.settle()
    assert world.nodes["a"].labels["nvidia.com/mig.config.state"] == "success"
    assert world.status()["upgrade"]["done"] == 3


@pytest.mark.parametrize("spec", [{"driver": {"enabled": False}}, {"migManager": {"enabled": False}}])
def test_what_is_switched_off_half_way_leaves_no_node_cordoned(world: World, spec: dict[str, Any]) -> None:
    world.workloads["job"] = job("a")
    world.label("b", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.change_policy(NEW)
    world.run(4)
    world.change_policy({**NEW, **spec} if "driver" not in spec else spec)
    world.settle()
    assert not any(node.unschedulable for node in world.nodes.values())
    assert not any("paused" in str(world.deployed(name)) for name in world.nodes)
    assert world.status()["state"] == "ready"


def test_a_node_that_is_excluded_half_way_is_given_back(world: World) -> None:
    world.change_policy(NEW)
    world.run(5)
    assert world.nodes["a"].unschedulable
    world.label("a", **{"nvidia.com/gpu.deploy.operands": "false"})
    world.settle()
    assert not world.nodes["a"].unschedulable
    assert world.deployed("a") == {}
    assert world.status()["state"] == "ready"
