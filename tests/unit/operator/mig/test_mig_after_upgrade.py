"""MIG devices do not outlive a driver: after an upgrade they are made anew, and only then is the node valid."""

from tests.unit.operator.world import World

from purser.operator.model import Action, DeletePod, PatchNode
from purser.operator.names import MIG_CONFIG_LABEL, MIG_STATE_LABEL
from purser.operator.order import Operand


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
