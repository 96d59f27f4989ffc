"""The driver upgrade: a state machine over one snapshot of the fleet. It decides the next steps, and does no I/O.

A node's state stands in its label ``nvidia.com/gpu-driver-upgrade-state``; everything else that must outlive a round is
an annotation beside it, written in the same patch. What each state means, as a rule from top to bottom::

    upgrade-required       another driver is due; it queued for upgrade (`budget`)
    cordon-required        it is its turn
    wait-for-jobs-required, pod-deletion-required, drain-required
                           cordoned; pods leave by eviction (`machine`); the old driver is untouched
    pod-restart-required   operands that need the driver are paused; once nothing uses the old driver, it is replaced:
                           with that the new one's time begins (`replacing`)
    validation-required    the new driver is ready, operands come back in order
    uncordon-required, upgrade-done
    upgrade-failed         before the old driver was touched: uncordoned, retried later;
                           after: it stays cordoned and counts towards halting the upgrade

All transitions; ``(none)`` is a node without a state::

    (none)                  -> upgrade-required, upgrade-done
    upgrade-required        -> cordon-required, upgrade-done
    cordon-required         -> wait-for-jobs-required, pod-deletion-required, pod-restart-required, upgrade-required
    wait-for-jobs-required  -> pod-deletion-required, pod-restart-required, validation-required, upgrade-required
    pod-deletion-required   -> pod-restart-required, drain-required, validation-required
    pod-deletion-required   -> upgrade-failed, upgrade-required
    drain-required          -> pod-restart-required, validation-required, upgrade-failed, upgrade-required
    pod-restart-required    -> validation-required, upgrade-failed, upgrade-required
    pod-restart-required    -> wait-for-jobs-required, pod-deletion-required
    validation-required     -> uncordon-required, upgrade-failed
    validation-required     -> wait-for-jobs-required, pod-deletion-required, pod-restart-required
    uncordon-required       -> upgrade-done
    upgrade-done            -> upgrade-required
    upgrade-failed          -> upgrade-done, upgrade-required
    (any)                   -> (none)

The last where the operator no longer manages the node's driver, or automatic upgrades are off. Back to
``upgrade-required`` goes a node that is requeued with its old driver; back to where pods leave, one for which yet
another driver is due.

A node begins, and goes on as long as its old driver is there, only while the DaemonSet of its pool is live as the
policy says: otherwise it would give up its pods and its driver for the same one.

A node that goes away before its old driver was touched is requeued at once (``machine``). So is one that gets a
taint which keeps the new driver's pods away, or those of operands that leave for it.

Where the driver stays the same and only its pod's template differs (priority, tolerations, resources), no pod has to
leave and nothing is paused: from ``cordon-required`` the node goes straight to ``pod-restart-required``.

A round asks `turn` (`budget`) who begins, then `advance` (`fleet`), which asks `machine` for each node's next step.
`plan` (`planning`) calls the same two, over a copy of the fleet: what plans an upgrade and what carries it out share
their rules.

Not here: which driver a node should have (``gates``), what it shares with MIG changes (``maintenance``), and the
writing (``writing``).
"""

from purser.operator.upgrade.budget import turn, unavailable
from purser.operator.upgrade.fleet import advance, upgrade_status
from purser.operator.upgrade.planning import UpgradePlan, plan, plan_lines
from purser.operator.upgrade.states import (
    State,
    UpgradeInputs,
    blocks_mig,
    is_blocked_by_taint,
    is_due,
    is_under_way,
    needs_workloads,
    pause_of,
    state_of,
)
from purser.operator.upgrade.writes import failure_of

__all__ = [
    "State",
    "UpgradeInputs",
    "UpgradePlan",
    "advance",
    "blocks_mig",
    "failure_of",
    "is_blocked_by_taint",
    "is_due",
    "is_under_way",
    "needs_workloads",
    "pause_of",
    "plan",
    "plan_lines",
    "state_of",
    "turn",
    "unavailable",
    "upgrade_status",
]
