"""What work on nodes is decided from, whoever does it."""

import math
from collections.abc import Mapping

import msgspec

from purser.operator.model import Budget, NodeWorkload, Standing
from purser.operator.nodework.evicting import Rules
from purser.operator.policy.driver import UpgradePolicy


class NodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """What driver upgrades and MIG changes have to know alike."""

    now: float
    policy: UpgradePolicy
    """It bounds how many nodes are unavailable, and says how GPU pods leave: for MIG changes, too."""
    standings: tuple[Standing, ...]
    workloads: Mapping[str, tuple[NodeWorkload, ...]] = {}
    """By node; of a node that is not there nothing is known."""
    budgets: tuple[Budget, ...] = ()
    busy: frozenset[str] = frozenset()
    """Nodes where something else is under way (an upgrade, a MIG change, a reboot): not begun."""

    @property
    def max_unavailable(self) -> int:
        """How many GPU nodes may be unavailable; a percentage is rounded up."""
        bound = self.policy.max_unavailable
        return bound if isinstance(bound, int) else math.ceil(len(self.standings) * int(bound.removesuffix("%")) / 100)

    @property
    def no_room(self) -> str:
        """Why a node that is available does not begin once so many are not."""
        return f"no more than {self.max_unavailable} GPU nodes may be unavailable (maxUnavailable)"

    @property
    def rules(self) -> Rules:
        """Which GPU pods may be asked to leave."""
        return Rules.of(self.policy.gpu_pod_deletion)
