"""What the operator's page shows: nodes by who needs a look first, and the gates of each in words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from purser.core.state import ClusterState, Rollout, RolloutNode, RolloutPolicy
from purser.core.wording import natural

MAX_OPERANDS = 32
"""Columns of the nodes' table: several times as many as the operator has."""
_GATE_WORDS = {
    "": "waits",
    "true": "admitted",
    "false": "excluded",
    "paused-for-driver-upgrade": "paused: driver upgrade",
    "paused-for-mig-change": "paused: MIG change",
    "pre-installed": "the node's own",
}
"""Values of the labels ``nvidia.com/gpu.deploy.<operand>``; others are shown as they are."""
_ADMITTED = {"true", "pre-installed"}
_SETTLED_UPGRADES = {"", "upgrade-done"}
_FAILED_UPGRADE = "upgrade-failed"


@dataclass(frozen=True)
class Gate:
    """Whether an operand may run on a node."""

    words: str
    is_admitted: bool


@dataclass(frozen=True)
class RolloutRow:
    """A node."""

    node: RolloutNode
    gates: Sequence[Gate]
    """One for each operand of the page's table."""
    failure: str
    """Why it cannot become ready by itself; empty: nothing is known to keep it from that."""
    pods: int
    """That hold GPUs there, as far as the viewer may see them."""

    @property
    def is_changing(self) -> bool:
        """Whether its driver is being upgraded, its MIG layout changed, or an operand is not admitted yet."""
        node = self.node
        return (
            node.upgrade not in _SETTLED_UPGRADES
            or node.mig_state not in ("", "success", "failed")
            or not all(gate.is_admitted for gate in self.gates)
        )

    @property
    def has_failed(self) -> bool:
        """Whether it needs somebody's help."""
        return bool(self.failure) or self.node.upgrade == _FAILED_UPGRADE or self.node.mig_state == "failed"


def active_policy(rollout: Rollout) -> RolloutPolicy | None:
    """The one that is rolled out; None: there is none."""
    return next((each for each in rollout.policies if each.state != "ignored"), None)


def operand_names(rollout: Rollout) -> list[str]:
    """The operands that the active policy enables, in the order of their rollout; without a policy, those that nodes
    have labels of: the first of them, since nodes can have any labels."""
    policy = active_policy(rollout)
    if policy is not None and policy.operands:
        return [each.name for each in policy.operands if each.state != "disabled"][:MAX_OPERANDS]
    return sorted({operand for node in rollout.nodes for operand in node.gates})[:MAX_OPERANDS]


def rollout_rows(rollout: Rollout, state: ClusterState) -> list[RolloutRow]:
    """All nodes: those that have failed first, then those that change."""
    operands = operand_names(rollout)
    failures = _failures(rollout)
    pods = Counter(grant.node for grant in state.grants)
    rows = [
        RolloutRow(
            node=node,
            gates=[_gate(node.gates.get(operand, "")) for operand in operands],
            failure=failures.get(node.name) or node.upgrade_failure,
            pods=pods[node.name],
        )
        for node in rollout.nodes
    ]
    return sorted(rows, key=lambda row: (not row.has_failed, not row.is_changing, natural(row.node.name)))


def _failures(rollout: Rollout) -> Mapping[str, str]:
    policy = active_policy(rollout)
    failing = () if policy is None else policy.failing_nodes
    return {
        each.name: ": ".join(filter(None, (each.operand, each.message or each.reason))) for each in reversed(failing)
    }


def _gate(value: str) -> Gate:
    return Gate(_GATE_WORDS.get(value, value), value in _ADMITTED)
