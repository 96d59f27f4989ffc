"""A cordon is lifted by whom it was set: when people lifted Purser's, the next one is theirs."""

import pytest
from tests.unit.operator.world import World, made_once

from purser.core.names import (
    CORDONED_BY_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    MIG_WANTED_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from purser.operator.order import Operand


@made_once
def world_of_two() -> World:
    world = World()
    world.add_policy(spec={"driver": {"version": "580.10"}})
    for name in "ab":
        world.add_node(name, labels={"nvidia.com/mig.capable": "true"})
    world.settle()
    return world


def people_lift_it_and_cordon_anew(world: World) -> None:
    assert world.nodes["a"].unschedulable
    world.set_node("a", unschedulable=False)
    world.round()
    assert CORDONED_BY_ANNOTATION not in world.nodes["a"].annotations
    world.set_node("a", unschedulable=True)
    world.run(5)


def test_a_cordon_that_came_after_a_failed_upgrades_stays() -> None:
    world = world_of_two()
    world.troubles["a", Operand.DRIVER] = "CrashLoopBackOff"
    world.change_policy({"driver": {"version": "580.20", "upgradePolicy": {"driverTimeoutSeconds": 20}}})
    world.run(40)
    assert world.nodes["a"].labels[UPGRADE_STATE_LABEL] == "upgrade-failed"
    people_lift_it_and_cordon_anew(world)
    world.heal("a", Operand.DRIVER)
    world.run(40)
    assert world.nodes["a"].labels[UPGRADE_STATE_LABEL] == "upgrade-done"
    assert world.nodes["a"].unschedulable


def test_a_cordon_that_came_after_a_mig_changes_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of_two()
    at_work = World._mig_worker

    def hang(self: World, node: str) -> None:
        if '"check_only":true' in self.nodes[node].annotations.get(MIG_WANTED_ANNOTATION, ""):
            at_work(self, node)

    with monkeypatch.context() as patch:
        patch.setattr(World, "_mig_worker", hang)
        world.label("a", **{MIG_CONFIG_LABEL: "all-1g.10gb"})
        world.run(20)
        people_lift_it_and_cordon_anew(world)
    world.run(40)
    assert world.nodes["a"].labels[MIG_STATE_LABEL] == "success"
    assert world.nodes["a"].unschedulable


@pytest.mark.parametrize("mark", ["driver-upgrade", "mig-change", "something-else"])
def test_a_mark_without_a_cordon_is_taken_off_by_itself(mark: str) -> None:
    world = world_of_two()
    world.annotate("a", CORDONED_BY_ANNOTATION, mark)
    world.settle()
    assert CORDONED_BY_ANNOTATION not in world.nodes["a"].annotations


def test_a_cordon_that_is_lifted_in_the_middle_of_an_upgrade_is_set_again_and_is_purser_s() -> None:
    world = world_of_two()
    world.lingering = True  # the node stays where operands are paused
    world.change_policy({"driver": {"version": "580.20"}})
    world.run(20)
    assert world.nodes["a"].labels[UPGRADE_STATE_LABEL] == "pod-restart-required"
    world.set_node("a", unschedulable=False)
    world.round()
    assert world.nodes["a"].unschedulable
    assert CORDONED_BY_ANNOTATION in world.nodes["a"].annotations
    world.lingering = False
    world.settle()
    assert not world.nodes["a"].unschedulable
