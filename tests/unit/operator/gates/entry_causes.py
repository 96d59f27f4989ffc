"""What keeps an operand out of a node, described a second time: by what is seen from outside, and not by the code's own
words. A new thing that a gate waits for has one line in `CAUSES`; a field of nodes that it looks at one in `FIELDS`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from tests.unit.operator.sections import all_operands
from tests.unit.operator.world import World

from purser.core.kubernetes.taints import Taint
from purser.operator.deciding.reconcile import RoundView, view_of
from purser.operator.gates import gate_patch
from purser.operator.gates.facts import user_override
from purser.operator.gates.progress import gate_value
from purser.operator.model import NodeView, Snapshot
from purser.operator.names import LABEL_TRUE
from purser.operator.order import Operand, dependents
from purser.operator.policy.decoding import choose
from purser.operator.reasons import OperatorReason

ALL = all_operands(enabled=True) | {"driver": {"version": "580.1"}}
NEEDING = dependents(Operand.DRIVER)


class Cause(NamedTuple):
    """Something that happens on node ``a``, or is there from the start."""

    reason: OperatorReason
    """Under which the status tells it."""
    operands: tuple[Operand, ...]
    """Those that are not let in as long as it lasts."""
    happens: Callable[[World], None]
    lasts: Callable[[World], bool] = lambda world: True


def _crashes(operand: Operand) -> Cause:
    return Cause(OperatorReason.WAITING, dependents(operand), lambda world: world.crash("a", operand))


def _reboots(world: World) -> None:
    world.reboot("a")
    world.crash("a", Operand.DRIVER)


def _loses_its_driver(world: World) -> None:
    world.lingering = True
    world.change_policy(ALL | {"driver": {"enabled": False}})


def _rules_the_driver_out(world: World) -> None:
    excluded = {"nodeSelector": {"kubernetes.io/os": "linux"}, "excluded": ["580"]}
    world.change_policy(ALL | {"driver": {"version": "580.1", "requirements": [excluded]}})


def _driver_depends_on_the_model(world: World) -> None:
    profile = {"name": "h", "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "version": "595.1"}
    world.troubles["a", "gpu-discovery"] = "ErrImagePull"
    world.annotate("a", "purser.dev/node-facts", None)
    world.change_policy(ALL | {"driver": {"version": "580.1", "profiles": [profile]}})


CAUSES: dict[str, Cause] = {
    "the driver crashes": _crashes(Operand.DRIVER),
    "the toolkit crashes": _crashes(Operand.TOOLKIT),
    "the device plugin crashes": _crashes(Operand.DEVICE_PLUGIN),
    "the node is not valid": _crashes(Operand.VALIDATOR),
    "DCGM crashes": _crashes(Operand.DCGM),
    "it restarts, and its driver does not": Cause(OperatorReason.WAITING, NEEDING, _reboots),
    "the policy has no driver any more, and there is one": Cause(
        OperatorReason.WAITING,
        NEEDING,
        _loses_its_driver,
        lambda world: any(pod.operand == Operand.DRIVER for pod in world.on("a")),
    ),
    "no driver fits it": Cause(OperatorReason.NO_DRIVER, (Operand.DRIVER,), _rules_the_driver_out),
    "which driver fits depends on its model": Cause(
        OperatorReason.MODEL_UNKNOWN, (Operand.DRIVER,), _driver_depends_on_the_model
    ),
}


class Field(NamedTuple):
    """A field of `NodeView` that changes while a node lives."""

    well: Any
    values: st.SearchStrategy[Any]
    closes: Callable[[Any], tuple[Operand, ...]] = lambda value: ()
    """Which operands are not let in while it has a value."""


FIELDS: dict[str, Field] = {
    "ready": Field(True, st.sampled_from([True, True, True, False])),
    "taints": Field((), st.sampled_from([(), (), (Taint("team", "", "NoSchedule"),)])),
}
WELL: dict[str, Any] = {name: field.well for name, field in FIELDS.items()}
ANY_FIELDS = st.fixed_dictionaries({name: field.values for name, field in FIELDS.items()})


def closed_by_fields(node: NodeView) -> set[Operand]:
    """Operands that are not let in now, whatever else there is."""
    return {operand for name, field in FIELDS.items() for operand in field.closes(getattr(node, name))}


def is_let_in_now(before: NodeView | None, labels: dict[str, str | None], operand: Operand) -> bool:
    """Whether a write opens the gate, and not only leaves it open."""
    opens = labels.get(operand.deploy_label) == LABEL_TRUE
    return opens and (before is None or gate_value(before, operand) != LABEL_TRUE)


def seen(snapshot: Snapshot) -> RoundView | None:
    """What a round finds out; None: nothing is decided about nodes now."""
    chosen = choose(snapshot.policies)
    return None if chosen.policy is None or snapshot.rivals else view_of(snapshot, chosen)


def disagreements(view: RoundView | None) -> list[str]:
    """Where a round would write one thing into a closed gate's label and tell another: it opens where the status says
    that the operand is starting, and nowhere else."""
    found = []
    for progress in view.node_progress if view is not None else ():
        patch = gate_patch(progress, None, view.snapshot.daemon_sets, view.snapshot.now)
        for operand, told in progress.operands.items():
            is_out = not gate_value(progress.node, operand) and not user_override(progress.node, operand)
            opens = is_let_in_now(progress.node, dict(patch.labels), operand)
            if is_out and opens != (told.state == "waiting" and told.message == "starting"):
                found.append(f"{operand} on {progress.node.name}: {opens}, {told}")
    return found


def told_of_those_outside(view: RoundView | None) -> set[tuple[Operand, str]]:
    """Of operands that are out: under which reasons the status tells of them."""
    return {
        (operand, told.reason)
        for progress in (view.node_progress if view is not None else ())
        for operand, told in progress.operands.items()
        if not gate_value(progress.node, operand)
    }
