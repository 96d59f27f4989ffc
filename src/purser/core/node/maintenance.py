"""What the operator does to a node while it keeps pods away, by the marks that it leaves there."""

from collections.abc import Mapping

from purser.core.decoding import brief
from purser.core.names import CORDONED_BY_ANNOTATION, UPGRADE_STATE_LABEL

UPGRADE_PENDING = "upgrade-required"
UPGRADE_FAILED = "upgrade-failed"
UPGRADE_STEPS = {
    UPGRADE_PENDING: "pending",
    "cordon-required": "cordoning the node",
    "wait-for-jobs-required": "waiting for jobs",
    "pod-deletion-required": "evicting GPU pods",
    "drain-required": "draining the node",
    "pod-restart-required": "replacing the driver",
    "validation-required": "validating the driver",
    "uncordon-required": "uncordoning the node",
    "upgrade-done": "done",
    UPGRADE_FAILED: "failed",
}
"""In words, the values of the label ``nvidia.com/gpu-driver-upgrade-state``, in the order in which a node goes through
them."""
MIG_FAILED = "failed"
_SETTLED = ("", "upgrade-done")
_WORKS = {"driver-upgrade": "driver upgrade", "mig-change": "MIG change"}
"""In words, the values of the annotation ``purser.dev/cordoned-by``."""


def cordoned_by(annotations: Mapping[str, str], *, cordoned: bool) -> str:
    """For which work the operator has cordoned a node, ``driver-upgrade`` or ``mig-change``, which it uncordons itself
    afterwards; empty: people cordoned it, or nobody did."""
    return brief(annotations.get(CORDONED_BY_ANNOTATION, "")) if cordoned else ""


def unfinished_upgrade(labels: Mapping[str, str]) -> str:
    """The state of a node's driver upgrade, a key of `UPGRADE_STEPS` if it is known here; empty: none is to come."""
    state = labels.get(UPGRADE_STATE_LABEL, "")
    return "" if state in _SETTLED else state


def has_failed(cordoned_for: str, upgrade: str, mig_state: str) -> bool:
    """Whether the work for which a node is cordoned has failed: the node stays cordoned until somebody helps.
    ``mig_state``: value of the label ``nvidia.com/mig.config.state``."""
    if cordoned_for == "mig-change":
        return mig_state == MIG_FAILED
    return upgrade == UPGRADE_FAILED


def maintenance_words(cordoned_for: str, upgrade: str, mig_state: str = "") -> str:
    """What is done to a node, from the values above: ``driver upgrade: draining the node``; empty if nothing is."""
    step = f"driver upgrade: {UPGRADE_STEPS.get(upgrade, upgrade)}" if upgrade else ""
    if cordoned_for == "driver-upgrade" and step:
        return step
    work = _WORKS.get(cordoned_for, cordoned_for)
    if cordoned_for == "mig-change" and mig_state == MIG_FAILED:
        work = f"{work}: failed"
    return ", ".join(filter(None, (work, step)))
