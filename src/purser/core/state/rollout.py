"""How the operator's rollout goes, as one document: what ``GET /v1/rollout`` answers, and what the web pages show.

The status is the one that the operator writes into each ClusterPolicy (`purser.operator.policy.spec`, which explains
the fields), read by somebody else: fields that are missing are empty, and words that are new stay as they are.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from purser.core.decoding import UnreadableError, brief, check_nesting, convert_value, without_nulls
from purser.core.names import (
    DEPLOY_PREFIX,
    GPU_PRESENT_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    POOL_LABEL,
    UPGRADE_FAILURE_ANNOTATION,
    UPGRADE_STATE_LABEL,
)
from purser.core.node.maintenance import cordoned_by
from purser.core.wording import natural_sort_key

ROLLOUT_VERSION = "v1"
MAX_FAILURE = 1000
"""Characters of why a node's upgrade failed: its kubelet, too, may write the annotation."""


class RolloutCondition(msgspec.Struct, frozen=True):
    """A condition of a policy: Ready, Progressing or Degraded."""

    type: str = ""
    status: str = ""
    """``True``, ``False`` or ``Unknown``."""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    """RFC 3339."""


class RolloutOperand(msgspec.Struct, frozen=True):
    """One operand on all nodes."""

    name: str = ""
    state: str = ""
    """``disabled``, ``waiting``, ``progressing``, ``ready`` or ``failing``."""
    desired: int = 0
    """Nodes on which it should run."""
    ready: int = 0
    updated: int = 0
    """Nodes on which its pod has the newest template."""
    waiting: int = 0
    """Nodes that do not have what it needs yet."""
    reason: str = ""
    message: str = ""
    """What blocks it, on which node, in one sentence."""


class RolloutFailure(msgspec.Struct, frozen=True):
    """A node that cannot become ready by itself."""

    name: str = ""
    operand: str = ""
    """Empty: the node itself."""
    reason: str = ""
    message: str = ""


class RolloutCounts(msgspec.Struct, frozen=True):
    """GPU nodes by state."""

    total: int = 0
    ready: int = 0
    progressing: int = 0
    failing: int = 0
    excluded: int = 0


class RolloutPool(msgspec.Struct, frozen=True):
    """Nodes with the same operating system, kernel and driver."""

    name: str = ""
    os: str = ""
    kernel: str = ""
    driver: str = ""
    """Version."""
    nodes: int = 0


class RolloutUpcoming(msgspec.Struct, frozen=True):
    """A node whose driver upgrade has not begun."""

    name: str = ""
    driver: str = ""
    """Version that it gets."""
    restart_only: bool = False
    """No pod has to leave: only the driver's own pod is restarted."""


class RolloutUpgrade(msgspec.Struct, frozen=True):
    """The driver upgrade, in nodes."""

    pending: int = 0
    in_progress: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    progress: str = ""
    """``12/40``: nodes that have the driver that they should have; empty if all do."""
    halted: bool = False
    halt_reason: str = ""
    target: str = ""
    """Value of the annotation that resumes a halted upgrade."""
    message: str = ""
    """What blocks it, in one sentence."""
    upcoming: tuple[RolloutUpcoming, ...] = ()
    """The first fifty that wait for it, in the order in which they begin."""


class RolloutPolicy(msgspec.Struct, frozen=True):
    """A ClusterPolicy."""

    name: str = ""
    state: str = ""
    """``ready``, ``notReady`` or ``ignored``; empty: no operator has seen it."""
    namespace: str = ""
    """Of the operands."""
    conditions: tuple[RolloutCondition, ...] = ()
    nodes: RolloutCounts = RolloutCounts()
    operands: tuple[RolloutOperand, ...] = ()
    failing_nodes: tuple[RolloutFailure, ...] = ()
    """The first hundred."""
    pools: tuple[RolloutPool, ...] = ()
    upgrade: RolloutUpgrade = RolloutUpgrade()


class RolloutNode(msgspec.Struct, frozen=True):
    """A GPU node as the operator and the MIG manager left it."""

    name: str
    cordoned: bool
    cordoned_by: str
    """``driver-upgrade`` or ``mig-change``; empty: people cordoned it, if it is cordoned."""
    pool: str
    """Of its driver."""
    gates: Mapping[str, str]
    """By operand, the value of its label: ``true`` admits its pod, ``paused-for-...`` takes it away for a while."""
    upgrade: str
    """State of the driver upgrade (docs/driver-upgrades.md); empty: never upgraded."""
    upgrade_failure: str
    """Why it failed, in one sentence."""
    mig_layout: str
    """The wanted one; empty: none."""
    mig_state: str
    """``pending``, ``success`` or ``failed``."""


class Rollout(msgspec.Struct, frozen=True):
    """All ClusterPolicies, and all nodes on which operands run or may run."""

    version: str
    policies: tuple[RolloutPolicy, ...]
    nodes: tuple[RolloutNode, ...]
    problems: tuple[str, ...] = ()
    """A sentence for each policy that cannot be read, or why none can be."""


def rollout_policy(name: str, status: Any) -> RolloutPolicy:
    """A policy by its name and its status, as plain values. Raises `UnreadableError`."""
    subject = f"the status of ClusterPolicy {brief(name)}"
    check_nesting(status, subject)
    found = convert_value(_to_snake_case(without_nulls(status or {})), RolloutPolicy, subject)
    return msgspec.structs.replace(found, name=name)


def rollout_node(
    name: str, labels: Mapping[str, str], annotations: Mapping[str, str], *, cordoned: bool
) -> RolloutNode | None:
    """A node by its metadata; None: it has no GPU that the operator knows of."""
    gates = {key.removeprefix(DEPLOY_PREFIX): value for key, value in labels.items() if key.startswith(DEPLOY_PREFIX)}
    if not gates and GPU_PRESENT_LABEL not in labels and MIG_CONFIG_LABEL not in labels:
        return None
    return RolloutNode(
        name=name,
        cordoned=cordoned,
        cordoned_by=cordoned_by(annotations, cordoned=cordoned),
        pool=labels.get(POOL_LABEL, ""),
        gates=dict(sorted(gates.items())),
        upgrade=labels.get(UPGRADE_STATE_LABEL, ""),
        upgrade_failure=brief(annotations.get(UPGRADE_FAILURE_ANNOTATION, ""), MAX_FAILURE),
        mig_layout=labels.get(MIG_CONFIG_LABEL, ""),
        mig_state=labels.get(MIG_STATE_LABEL, ""),
    )


def rollout(statuses: Mapping[str, Any], nodes: Iterable[RolloutNode], problems: Iterable[str] = ()) -> Rollout:
    """The document. ``statuses``: by name of the policy. A policy that cannot be read is named in the problems."""
    policies: list[RolloutPolicy] = []
    found = list(problems)
    for name in sorted(statuses, key=natural_sort_key):
        try:
            policies.append(rollout_policy(name, statuses[name]))
        except UnreadableError as error:
            found.append(str(error))
    # The active one is what people look for; of one without a state nobody knows yet whether it will be ignored.
    policies.sort(key=lambda policy: {"ignored": 2, "": 1}.get(policy.state, 0))
    return Rollout(
        ROLLOUT_VERSION,
        tuple(policies),
        tuple(sorted(nodes, key=lambda node: natural_sort_key(node.name))),
        tuple(found),
    )


_CAPITAL = re.compile(r"(?<!^)([A-Z])")


def _to_snake_case(value: Any) -> Any:
    """Keys as this document has them: ``inProgress`` is ``in_progress``. `convert_value` judges everything else."""
    if isinstance(value, dict):
        return {
            _CAPITAL.sub(r"_\1", key).lower() if isinstance(key, str) else key: _to_snake_case(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_to_snake_case(each) for each in value]
    return value
