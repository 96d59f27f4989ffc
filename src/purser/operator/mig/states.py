"""A change of a node's MIG layout: how far it is, and what is read off a node about it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from purser.core.names import MIG_RESULT_ANNOTATION
from purser.core.node_facts import MAX_BYTES, MigResult, decode_result
from purser.operator.model import Budget, NodeView, Standing, Workload
from purser.operator.names import (
    CORDONED_BY_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    MIG_STEP_ANNOTATION,
    PAUSED_FOR_MIG,
)
from purser.operator.order import Operand
from purser.operator.policy.sections import MigManagerSpec

CORDON_MARK = "mig-change"
"""Value of `CORDONED_BY_ANNOTATION` on nodes that a MIG change cordoned."""

PENDING, SUCCESS, FAILED = "pending", "success", "failed"
"""Values of the label ``nvidia.com/mig.config.state``."""

GPU_CLIENTS = (
    Operand.DEVICE_PLUGIN,
    Operand.GFD,
    Operand.VALIDATOR,
    Operand.DCGM,
    Operand.DCGM_EXPORTER,
    Operand.NODE_STATUS_EXPORTER,
)
"""Operands that hold GPUs open: they are paused while a layout is applied."""

StepName = Literal["checking", "draining", "applying"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is under way, as it stands in the node's annotation."""

    step: StepName
    profile: str
    attempt: str
    """The node's circumstances (see `circumstances`), then what tells this try from others."""
    since: float
    """When the step began."""

    @property
    def check_attempt(self) -> str:
        """Of the request that only compares."""
        return f"{self.attempt}/check"

    @property
    def apply_attempt(self) -> str:
        """Of the request that changes."""
        return f"{self.attempt}/apply"


class MigFleet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that MIG changes are decided from."""

    now: float
    spec: MigManagerSpec
    standings: tuple[Standing, ...]
    workloads: Mapping[str, tuple[Workload, ...]] = {}
    """By node; of a node that is not there nothing is known."""
    budgets: tuple[Budget, ...] = ()
    busy: frozenset[str] = frozenset()
    """Nodes whose driver is being replaced: not begun."""


def change_of(node: NodeView) -> Change | None:
    """The change that is under way; None where there is none, or its record cannot be read."""
    text = node.annotations.get(MIG_STEP_ANNOTATION, "")
    if not text or len(text) > MAX_BYTES:
        return None
    try:
        return msgspec.json.decode(text, type=Change)
    except msgspec.MsgspecError:
        return None


def is_under_way(node: NodeView) -> bool:
    """A change has begun on the node and has not ended."""
    return MIG_STEP_ANNOTATION in node.annotations


def pause_of(node: NodeView) -> str | None:
    """What `GPU_CLIENTS` are paused for. A record that cannot be read pauses nothing."""
    change = change_of(node)
    return PAUSED_FOR_MIG if change is not None and change.step != "checking" else None


def needs_workloads(node: NodeView) -> bool:
    """The next step on this node depends on the pods that run there."""
    change = change_of(node)
    return change is not None and change.step == "draining"


def trouble_of(node: NodeView) -> str:
    """Why the node's last change failed, in one sentence; empty where it did not."""
    result = decode_result(node.annotations.get(MIG_RESULT_ANNOTATION))
    failed = node.labels.get(MIG_STATE_LABEL) == FAILED
    return f"MIG layout {result.profile}: {result.error}" if failed and result is not None else ""


def wanted_profile(standing: Standing, spec: MigManagerSpec) -> str:
    """The layout that the node is to have; empty: it is left alone."""
    return standing.node.labels.get(MIG_CONFIG_LABEL) or spec.config.default


def is_managed(standing: Standing, spec: MigManagerSpec) -> bool:
    """Its GPUs can MIG, and the MIG manager runs there or is to."""
    manager = standing.operands.get(Operand.MIG_MANAGER)
    return spec.enabled and standing.mig_capable and manager is not None and manager.state != "excluded"


def circumstances(standing: Standing) -> str:
    """What a layout does not outlive: the node's boot and its driver's pod. A result counts within the same ones only;
    so does a failure: after a reboot it is tried again."""
    driver = standing.pod_of(Operand.DRIVER)
    return f"{standing.node.boot_id}.{driver.uid if driver is not None else ''}"


def result_now(standing: Standing, profile: str) -> MigResult | None:
    """What is known of a profile under the present circumstances, if it is more than that the layout differs."""
    result = decode_result(standing.node.annotations.get(MIG_RESULT_ANNOTATION))
    if result is None or result.differs or result.profile != profile:
        return None
    return result if result.attempt.partition("#")[0] == circumstances(standing) else None


def result_of(node: NodeView, attempt: str) -> MigResult | None:
    """The worker's answer to one request."""
    result = decode_result(node.annotations.get(MIG_RESULT_ANNOTATION))
    return result if result is not None and result.attempt == attempt else None


def cordon_is_ours(node: NodeView) -> bool:
    """The cordon was set by a MIG change."""
    return node.annotations.get(CORDONED_BY_ANNOTATION) == CORDON_MARK
