"""Pods leave a node: who has to, who may, and by which budgets."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from purser.core.kubernetes.selectors import SelectorError, of_object, parse
from purser.operator.model import Budget, Evict, NodeWorkload
from purser.operator.names import DEPLOY, UPGRADE_DRAIN_SKIP_LABEL
from purser.operator.policy.driver import Drain, PodDeletion
from purser.operator.wording import counted, some

EVICTION_RETRY_PERIOD_S = 5.0
"""After which time pods that did not leave are asked again."""

UNKNOWN_PODS = "pods on the node are not listed yet"

DAEMON_SET = "DaemonSet"


# --- disruption budgets


class DisruptionLedger:
    """What disruption budgets allow within one round: each pod that is let go counts against all of its own."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets: dict[str, list[Budget]] = defaultdict(list)
        self._left: dict[tuple[str, str], int] = {}
        for budget in budgets:
            self._budgets[budget.namespace].append(budget)
            self._left[budget.namespace, budget.name] = budget.allowed

    def try_evict(self, workload: NodeWorkload) -> str:
        """Count a pod's eviction; or say why it cannot be now, and count nothing."""
        # The API server asks no budget for these.
        if workload.terminating or workload.phase in ("Pending", "Succeeded", "Failed"):
            return ""
        concerned = [each for each in self._budgets[workload.namespace] if _covers(each, workload)]
        if len(concerned) > 1:  # the API server refuses these whatever is left
            return f"has {len(concerned)} PodDisruptionBudgets: {', '.join(sorted(b.name for b in concerned))}"
        for budget in concerned:
            if not workload.ready and _counts_without(budget):
                continue
            if self._left[budget.namespace, budget.name] <= 0:
                return f"is protected by PodDisruptionBudget {budget.name}"
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


# --- requests


class Rules(msgspec.Struct, frozen=True):
    """Which pods are not asked to leave because something would be lost with them."""

    force: bool = False
    delete_empty_dir: bool = False

    @classmethod
    def of(cls, section: PodDeletion | Drain) -> "Rules":
        """As a section of the policy says."""
        return cls(section.force, section.delete_empty_dir)

    def forbid(self, workload: NodeWorkload) -> str:
        """Why a pod is not evicted, in a sentence's end; empty: it may be."""
        if workload.mirror:
            return "is a static pod and cannot be evicted"
        if not workload.controller and not self.force:
            return "has no controller and would not be recreated (force is off)"
        if workload.empty_dir and not self.delete_empty_dir:
            return "has an emptyDir volume that would be lost (deleteEmptyDir is off)"
        return ""


class EvictionRequest(msgspec.Struct, frozen=True):
    """What is asked of the pods that have to leave."""

    evictions: tuple[Evict, ...] = ()
    staying: tuple[str, ...] = ()
    """Why each pod that is not asked stays, in one sentence."""

    def describe(self, others: int) -> str:
        """What keeps a node waiting, in one sentence."""
        if self.staying:
            return some(self.staying, "pod", named=1)
        return f"waiting for {counted(others, 'pod')} to terminate"


def request_evictions(
    pods: Iterable[NodeWorkload], rules: Rules, ledger: DisruptionLedger, why: str
) -> EvictionRequest:
    """Evict those that may be; terminating ones are left to end.

    As long as one of them may not be evicted at all, none is: the others would die for a node that is not emptied.
    """
    there = sorted((pod for pod in pods if not pod.terminating), key=lambda each: (each.namespace, each.name))
    forbidden = [_stays(pod, problem) for pod in there if (problem := rules.forbid(pod))]
    if forbidden:
        return EvictionRequest(staying=tuple(forbidden))
    problems = [(pod, ledger.try_evict(pod)) for pod in there]
    return EvictionRequest(
        evictions=tuple(Evict(pod, why) for pod, problem in problems if not problem),
        staying=tuple(_stays(pod, problem) for pod, problem in problems if problem),
    )


def _stays(pod: NodeWorkload, problem: str) -> str:
    return f"pod {pod.namespace}/{pod.name} {problem}"


def ask_again(now: float, until: float | None) -> float:
    """When pods that stay are asked the next time: before the deadline, if there is one."""
    return now + EVICTION_RETRY_PERIOD_S if until is None else min(now + EVICTION_RETRY_PERIOD_S, until)


# --- pods


def is_active(workload: NodeWorkload) -> bool:
    """It has not ended: it may hold a GPU."""
    return workload.phase not in ("Succeeded", "Failed")


def gpu_pods(workloads: Iterable[NodeWorkload]) -> list[NodeWorkload]:
    """Pods that use a GPU; idle ones do, too: they hold the driver's files open."""
    return [pod for pod in workloads if pod.uses_gpu and is_active(pod)]


def evictable_gpu_pods(workloads: Iterable[NodeWorkload]) -> list[NodeWorkload]:
    """GPU pods that do not come back to a cordoned node. Those of DaemonSets do, until the device plugin is gone."""
    return [pod for pod in gpu_pods(workloads) if pod.controller != DAEMON_SET]


def jobs(workloads: Iterable[NodeWorkload], selector: str) -> list[NodeWorkload]:
    """Pods that an upgrade waits for."""
    wanted = parse(selector)
    return [pod for pod in workloads if is_active(pod) and wanted.matches(pod.labels)]


def drained_pods(workloads: Iterable[NodeWorkload], selector: str) -> list[NodeWorkload]:
    """Pods that a drain evicts."""
    wanted = parse(selector)
    return [pod for pod in workloads if _is_drained(pod) and wanted.matches(pod.labels)]


def _is_drained(pod: NodeWorkload) -> bool:
    is_skipped = pod.labels.get(UPGRADE_DRAIN_SKIP_LABEL) == DEPLOY
    return is_active(pod) and pod.controller != DAEMON_SET and not pod.mirror and not is_skipped
