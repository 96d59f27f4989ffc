"""What the operator's page shows: nodes by who needs a look first, and the gates of each in words."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from purser.core.node.maintenance import UPGRADE_FAILED, UPGRADE_PENDING, UPGRADE_STEPS, maintenance_words
from purser.core.state import ClusterState, Rollout, RolloutNode, RolloutPolicy, StateGrant
from purser.core.wording import natural_sort_key

MAX_OPERANDS = 32
"""Columns of the nodes' table: several times as many as the operator has."""
MAX_DISTURBED = 50
"""Nodes that are listed with their pods."""
_WAITING_WORD, _NOT_NEEDED_WORD = "waits", "not needed"
_GATE_WORDS = {
    "true": "admitted",
    "false": "excluded",
    "paused-for-driver-upgrade": "paused: driver upgrade",
    "paused-for-mig-change": "paused: MIG change",
    "pre-installed": "the node's own",
}
"""Values of the labels ``nvidia.com/gpu.deploy.<operand>``; others are shown as they are."""
_ALL_OPERANDS = "operands"
"""In the place of an operand's name: what people wrote of all of them."""
_PAUSE = "paused-for-"
_SETTLED_UPGRADES = {"", "upgrade-done", UPGRADE_PENDING}
_DISTURBING_STEPS = {
    "cordon-required",
    "wait-for-jobs-required",
    "pod-deletion-required",
    "drain-required",
}
"""Steps at which GPU pods have yet to leave."""


@dataclass(frozen=True)
class Gate:
    """Whether an operand may run on a node."""

    words: str
    is_settled: bool
    """Whether it stays so until people change something: the operand is admitted, or is not for this node."""


@dataclass(frozen=True)
class RolloutRow:
    """A node."""

    node: RolloutNode
    gates: Sequence[Gate]
    """One for each operand of the page's table."""
    failure: str
    """Why it cannot become ready by itself; empty: nothing is known to keep it from that."""
    pods: Sequence[StateGrant]
    """That hold GPUs there, as far as the viewer may see them."""

    @property
    def step(self) -> str:
        """Of the driver upgrade, in words."""
        return UPGRADE_STEPS.get(self.node.upgrade, self.node.upgrade) or "none"

    @property
    def work(self) -> str:
        """For which the operator has cordoned it, in words; empty: for none."""
        return maintenance_words(self.node.cordoned_by, "")

    @property
    def is_pending(self) -> bool:
        """Whether its driver will be upgraded later."""
        return self.node.upgrade == UPGRADE_PENDING

    @property
    def is_being_emptied(self) -> bool:
        """Whether its driver upgrade has begun, and pods on it have yet to leave for it."""
        return self.node.upgrade in _DISTURBING_STEPS

    @property
    def is_changing(self) -> bool:
        """Whether its driver is being upgraded, its MIG layout is being changed, or an operand waits or is paused."""
        node = self.node
        return (
            node.upgrade not in _SETTLED_UPGRADES
            or node.mig_state not in ("", "success", "failed")
            or not all(gate.is_settled for gate in self.gates)
        )

    @property
    def has_failed(self) -> bool:
        """Whether it needs somebody's help."""
        return bool(self.failure) or self.node.upgrade == UPGRADE_FAILED or self.node.mig_state == "failed"


@dataclass(frozen=True)
class DisruptedNode:
    """A node whose pods have yet to leave for the driver upgrade."""

    name: str
    step: str
    """In words."""
    driver: str
    """The version that it gets; empty: its upgrade has begun, or the version is not known."""
    restarts_only: bool
    """Its driver stays the same, so its pods stay."""
    pods: Sequence[StateGrant]
    """That hold GPUs there, as far as the viewer may see them."""


def active_policy(rollout: Rollout) -> RolloutPolicy | None:
    """The one that is rolled out; None: there is none."""
    return next((each for each in rollout.policies if each.state != "ignored"), None)


def operand_names(rollout: Rollout) -> list[str]:
    """The operands that the active policy enables, in the order of their rollout; without a policy, those that nodes
    have labels of: the first of them, since nodes can have any labels."""
    policy = active_policy(rollout)
    if policy is not None and policy.operands:
        return [each.name for each in policy.operands if each.state != "disabled"][:MAX_OPERANDS]
    return sorted({operand for node in rollout.nodes for operand in node.gates} - {_ALL_OPERANDS})[:MAX_OPERANDS]


def rollout_rows(rollout: Rollout, state: ClusterState) -> list[RolloutRow]:
    """All nodes: those that have failed first, then those that change."""
    operands, waiting = operand_names(rollout), _waiting_operands(rollout)
    failures = _failures(rollout)
    pods: dict[str, list[StateGrant]] = defaultdict(list)
    for grant in state.grants:
        pods[grant.node].append(grant)
    rows = [
        RolloutRow(
            node=node,
            gates=[_gate(node, operand, operand in waiting) for operand in operands],
            failure=failures.get(node.name) or node.upgrade_failure,
            pods=pods.get(node.name, ()),
        )
        for node in rollout.nodes
    ]
    return sorted(rows, key=_urgency_key)


def _urgency_key(row: RolloutRow) -> tuple[object, ...]:
    return (not row.has_failed, not row.is_changing, not row.is_pending, natural_sort_key(row.node.name))


def next_disrupted(rollout: Rollout, rows: Sequence[RolloutRow]) -> tuple[Sequence[DisruptedNode], int]:
    """The nodes whose GPU pods have yet to leave for the driver upgrade, and how many there are in all: those where it
    has begun, then the others in the order in which the operator begins with them."""
    begun = [DisruptedNode(row.node.name, row.step, "", False, row.pods) for row in rows if row.is_being_emptied]
    policy = active_policy(rollout)
    if policy is None:
        return begun[:MAX_DISTURBED], len(begun)
    pods = {row.node.name: row.pods for row in rows}
    waiting = [
        DisruptedNode(
            each.name, UPGRADE_STEPS[UPGRADE_PENDING], each.driver, each.restart_only, pods.get(each.name, ())
        )
        for each in policy.upgrade.upcoming
    ]
    total = len(begun) + max(policy.upgrade.pending, len(waiting))
    return [*begun, *waiting][:MAX_DISTURBED], total


def _failures(rollout: Rollout) -> Mapping[str, str]:
    policy = active_policy(rollout)
    failing = () if policy is None else policy.failing_nodes
    return {
        each.name: ": ".join(filter(None, (each.operand, each.message or each.reason))) for each in reversed(failing)
    }


def _waiting_operands(rollout: Rollout) -> set[str]:
    """Those that some nodes do not have yet."""
    policy = active_policy(rollout)
    return set() if policy is None else {each.name for each in policy.operands if each.waiting}


def _gate(node: RolloutNode, operand: str, waits: bool) -> Gate:
    """``waits``: whether any node waits for the operand. Where none does, those without its label are not to have it,
    such as GPUs without MIG the MIG manager."""
    value = node.gates.get(operand, "")
    if not value and node.gates.get(_ALL_OPERANDS) == "false":
        value = "false"
    if not value:
        return Gate(_WAITING_WORD, False) if waits else Gate(_NOT_NEEDED_WORD, True)
    return Gate(_GATE_WORDS.get(value, value), not value.startswith(_PAUSE))
