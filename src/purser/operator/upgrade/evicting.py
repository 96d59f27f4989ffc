"""Who has to leave a node, and who may be asked to: the rules of force and emptyDir, and disruption budgets."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from purser.operator.model import Budget, Evict, Workload
from purser.operator.names import DEPLOY, UPGRADE_DRAIN_SKIP_LABEL
from purser.operator.selectors import SelectorError, of_object, parse

DAEMON_SET = "DaemonSet"


class Rules(msgspec.Struct, frozen=True):
    """Which pods are not asked to leave because something would be lost with them."""

    force: bool = False
    delete_empty_dir: bool = False

    def forbid(self, workload: Workload) -> str:
        """Why a pod is not evicted, in a sentence's end; empty: it may be."""
        if workload.mirror:
            return "is a static pod, which nobody can evict"
        if not workload.controller and not self.force:
            return "has no controller and would not come back (force is off)"
        if workload.empty_dir and not self.delete_empty_dir:
            return "has an emptyDir volume that would be lost (deleteEmptyDir is off)"
        return ""


class Desk:
    """What disruption budgets allow within one round: each pod that is let go counts against all of its own."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets: dict[str, list[Budget]] = defaultdict(list)
        self._left: dict[tuple[str, str], int] = {}
        for budget in budgets:
            self._budgets[budget.namespace].append(budget)
            self._left[budget.namespace, budget.name] = budget.allowed

    def let_go(self, workload: Workload) -> str:
        """Count a pod's eviction; or say why it cannot be now, and count nothing."""
        if workload.phase == "Pending":  # the API server asks no budget about pods that do not run
            return ""
        concerned = [each for each in self._budgets[workload.namespace] if _covers(each, workload)]
        if len(concerned) > 1:  # the API server refuses these whatever is left
            return f"is covered by {len(concerned)} disruption budgets: {', '.join(sorted(b.name for b in concerned))}"
        for budget in concerned:
            if self._left[budget.namespace, budget.name] <= 0:
                return f"is held by its disruption budget {budget.name}"
            self._left[budget.namespace, budget.name] -= 1
        return ""


class Leaving(msgspec.Struct, frozen=True):
    """What is asked of the pods that have to leave."""

    evictions: tuple[Evict, ...] = ()
    staying: tuple[str, ...] = ()
    """Why each pod that is not asked stays, in one sentence."""

    def describe(self, others: int) -> str:
        """What keeps a node waiting, in one sentence."""
        if self.staying:
            more = f", and {len(self.staying) - 1} more" if len(self.staying) > 1 else ""
            return self.staying[0] + more
        return f"waits for {others} pod{'s' if others != 1 else ''} to leave"


def ask_to_leave(pods: Iterable[Workload], rules: Rules, desk: Desk, why: str) -> Leaving:
    """Evict those that may be; those that are going already are left to go.

    As long as one of them may not be evicted at all, none is: the others would die for a node that is not emptied.
    """
    there = sorted((pod for pod in pods if not pod.going), key=lambda each: (each.namespace, each.name))
    forbidden = [_stays(pod, problem) for pod in there if (problem := rules.forbid(pod))]
    if forbidden:
        return Leaving(staying=tuple(forbidden))
    problems = [(pod, desk.let_go(pod)) for pod in there]
    return Leaving(
        evictions=tuple(Evict(pod, why) for pod, problem in problems if not problem),
        staying=tuple(_stays(pod, problem) for pod, problem in problems if problem),
    )


def _stays(pod: Workload, problem: str) -> str:
    return f"pod {pod.namespace}/{pod.name} {problem}"


def is_active(workload: Workload) -> bool:
    """It has not ended: it may hold a GPU."""
    return workload.phase not in ("Succeeded", "Failed")


def gpu_pods(workloads: Iterable[Workload]) -> list[Workload]:
    """Pods that use a GPU; idle ones do, too: they hold the driver's files open."""
    return [pod for pod in workloads if pod.uses_gpu and is_active(pod)]


def evictable_gpu_pods(workloads: Iterable[Workload]) -> list[Workload]:
    """GPU pods that do not come back to a cordoned node. Those of DaemonSets do, until the device plugin is gone."""
    return [pod for pod in gpu_pods(workloads) if pod.controller != DAEMON_SET]


def jobs(workloads: Iterable[Workload], selector: str) -> list[Workload]:
    """Pods that an upgrade waits for."""
    wanted = parse(selector)
    return [pod for pod in workloads if is_active(pod) and wanted.matches(pod.labels)]


def drained_pods(workloads: Iterable[Workload], selector: str) -> list[Workload]:
    """Pods that a drain evicts."""
    wanted = parse(selector)
    return [pod for pod in workloads if _is_drained(pod) and wanted.matches(pod.labels)]


def _is_drained(pod: Workload) -> bool:
    told_to_stay = pod.labels.get(UPGRADE_DRAIN_SKIP_LABEL) == DEPLOY
    return is_active(pod) and pod.controller != DAEMON_SET and not pod.mirror and not told_to_stay


def _covers(budget: Budget, workload: Workload) -> bool:
    try:
        return of_object(budget.selector).matches(workload.labels)
    except SelectorError:
        return True  # an operator that is not known here: what it protects is not put at risk
