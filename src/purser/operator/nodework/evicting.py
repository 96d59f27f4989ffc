"""Who has to leave a node, and who may be asked to: by the rules of force and emptyDir, and as budgets allow."""

from collections.abc import Iterable

import msgspec

from purser.core.selectors import parse
from purser.operator.model import Evict, NodeWorkload
from purser.operator.names import DEPLOY, UPGRADE_DRAIN_SKIP_LABEL
from purser.operator.nodework.disruption import DisruptionLedger
from purser.operator.policy.driver import Drain, PodDeletion
from purser.operator.wording import counted, some

DAEMON_SET = "DaemonSet"


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
            return "is a static pod, which nobody can evict"
        if not workload.controller and not self.force:
            return "has no controller and would not come back (force is off)"
        if workload.empty_dir and not self.delete_empty_dir:
            return "has an emptyDir volume that would be lost (deleteEmptyDir is off)"
        return ""


class Leaving(msgspec.Struct, frozen=True):
    """What is asked of the pods that have to leave."""

    evictions: tuple[Evict, ...] = ()
    staying: tuple[str, ...] = ()
    """Why each pod that is not asked stays, in one sentence."""

    def describe(self, others: int) -> str:
        """What keeps a node waiting, in one sentence."""
        if self.staying:
            return some(self.staying, "pod", named=1)
        return f"waits for {counted(others, 'pod')} to leave"


def ask_to_leave(pods: Iterable[NodeWorkload], rules: Rules, ledger: DisruptionLedger, why: str) -> Leaving:
    """Evict those that may be; those that are going already are left to go.

    As long as one of them may not be evicted at all, none is: the others would die for a node that is not emptied.
    """
    there = sorted((pod for pod in pods if not pod.going), key=lambda each: (each.namespace, each.name))
    forbidden = [_stays(pod, problem) for pod in there if (problem := rules.forbid(pod))]
    if forbidden:
        return Leaving(staying=tuple(forbidden))
    problems = [(pod, ledger.let_go(pod)) for pod in there]
    return Leaving(
        evictions=tuple(Evict(pod, why) for pod, problem in problems if not problem),
        staying=tuple(_stays(pod, problem) for pod, problem in problems if problem),
    )


def _stays(pod: NodeWorkload, problem: str) -> str:
    return f"pod {pod.namespace}/{pod.name} {problem}"


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
    told_to_stay = pod.labels.get(UPGRADE_DRAIN_SKIP_LABEL) == DEPLOY
    return is_active(pod) and pod.controller != DAEMON_SET and not pod.mirror and not told_to_stay
