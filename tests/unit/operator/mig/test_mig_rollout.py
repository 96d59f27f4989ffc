"""The whole kernel where nodes are to be cut, and get another driver besides: one bound for both; MIG devices, which do
not outlive a driver, are recreated, and only then is the node valid."""

import pytest
from tests.unit.operator.world import World, settled_world

from purser.core.names import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from purser.operator.model import Action, DeletePod, PatchNode
from purser.operator.order import Operand

NODES = tuple("abcdefgh")


def settled() -> World:
    return settled_world(*NODES, **{"nvidia.com/mig.capable": "true"})


def watch(world: World) -> list[int]:
    """How many nodes are cordoned, after each write."""
    seen: list[int] = []

    def count(_: Action) -> None:
        seen.append(sum(node.unschedulable for node in world.nodes.values()))

    world.watchers.append(count)
    return seen


@pytest.mark.parametrize("with_upgrade", [False, True], ids=["MIG alone", "MIG and another driver"])
def test_no_more_nodes_are_cordoned_than_the_policy_allows(with_upgrade: bool) -> None:
    world = settled()
    seen = watch(world)
    for name in NODES:
        world.label(name, **{MIG_CONFIG_LABEL: "all-1g.5gb"})
    upgrade = {"maxParallelUpgrades": 0, "maxUnavailable": "25%"}
    world.change_policy({"driver": {"upgradePolicy": upgrade} | ({"version": "600.1.1"} if with_upgrade else {})})
    world.settle()
    assert max(seen) == 2
    assert {node.labels[MIG_STATE_LABEL] for node in world.nodes.values()} == {"success"}
    assert world.status()["state"] == "ready"
    assert world.status()["upgrade"]["done"] == len(NODES)
    assert not any(node.unschedulable for node in world.nodes.values())


def test_a_node_in_mig_mode_is_valid_again_once_its_devices_are_back() -> None:
    world = World()
    world.add_policy()
    world.add_node("a", labels={"nvidia.com/mig.capable": "true", MIG_CONFIG_LABEL: "all-1g.5gb"})
    world.settle()
    assert world.nodes["a"].labels[MIG_STATE_LABEL] == "success"
    applied: list[str] = []

    def validate(action: Action) -> None:
        if isinstance(action, DeletePod) and action.pod.operand == Operand.DRIVER:
            world.troubles["a", Operand.VALIDATOR] = "NoGpu"
        if isinstance(action, PatchNode) and action.labels.get(MIG_STATE_LABEL) == "success":
            applied.append(world.nodes["a"].labels["nvidia.com/gpu-driver-upgrade-state"])
            world.troubles.pop(("a", Operand.VALIDATOR), None)

    world.watchers.append(validate)
    world.change_policy({"driver": {"version": "600.1.1"}})
    world.settle()
    assert applied == ["validation-required"]
    assert world.status()["upgrade"]["done"] == 1
    assert world.status()["state"] == "ready"
    assert not world.nodes["a"].unschedulable
