"""Disruption budgets, by the rules of the API server."""

from collections import defaultdict
from collections.abc import Iterable

from purser.core.selectors import SelectorError, of_object
from purser.operator.model import Budget, NodeWorkload


class DisruptionLedger:
    """What disruption budgets allow within one round: each pod that is let go counts against all of its own."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets: dict[str, list[Budget]] = defaultdict(list)
        self._left: dict[tuple[str, str], int] = {}
        for budget in budgets:
            self._budgets[budget.namespace].append(budget)
            self._left[budget.namespace, budget.name] = budget.allowed

    def let_go(self, workload: NodeWorkload) -> str:
        """Count a pod's eviction; or say why it cannot be now, and count nothing."""
        if workload.going or workload.phase in ("Pending", "Succeeded", "Failed"):  # the API server asks no budget
            return ""
        concerned = [each for each in self._budgets[workload.namespace] if _covers(each, workload)]
        if len(concerned) > 1:  # the API server refuses these whatever is left
            return f"is covered by {len(concerned)} disruption budgets: {', '.join(sorted(b.name for b in concerned))}"
        for budget in concerned:
            if not workload.ready and _counts_without(budget):
                continue
            if self._left[budget.namespace, budget.name] <= 0:
                return f"is held by its disruption budget {budget.name}"
            self._left[budget.namespace, budget.name] -= 1
        return ""


def _counts_without(budget: Budget) -> bool:
    """Whether the API server lets a pod that is not ready go beside this budget: always, if the budget says so, and
    otherwise while enough others are healthy. (Rules of kubernetes/pkg/registry/core/pod/storage/eviction.go.)"""
    return budget.unhealthy_may_go or budget.current_healthy >= budget.desired_healthy > 0


def _covers(budget: Budget, workload: NodeWorkload) -> bool:
    try:
        return of_object(budget.selector).matches(workload.labels)
    except SelectorError:
        return True  # an operator that is not known here: what it protects is not put at risk
