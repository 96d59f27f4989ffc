"""Pods that ask for GPUs and wait, and why: for metrics."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from purser.core.dialects import DialectError
from purser.core.dialects.policies import node_policy_word
from purser.core.model import PodRequest
from purser.core.pod.phases import phases
from purser.kube import Informer
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.scheduler.cache import ClusterCache
from purser.scheduler.reasons import PendingReason


class PendingPod(msgspec.Struct, frozen=True):
    """A pod that asks for GPUs and is on no node yet."""

    namespace: str
    policy: str
    """`node_policy_word`."""
    gpus: int
    """GPUs that it has at once at most, a share counted as one; 0: the request cannot be read."""
    reason: str = PendingReason.KUBE_SCHEDULER


class PendingTotals(msgspec.Struct):
    """How much waits of one namespace by one policy."""

    pods: Counter[str] = msgspec.field(default_factory=Counter)
    """Pods by the reason why they wait."""
    gpus: int = 0
    """How many these pods ask for together; a share of a GPU counts as one."""

    def add(self, other: "PendingTotals") -> None:
        """Count others' pods and GPUs here, too."""
        self.pods.update(other.pods)
        self.gpus += other.gpus


class PendingPods:
    """The pods that ask for GPUs, name this scheduler, and wait; kept up to date by an informer."""

    def __init__(self, cache: ClusterCache, default_policy: str) -> None:
        """``default_policy``: for nodes, of pods that name none."""
        self._cache = cache
        self._default_policy = default_policy
        self._pods: dict[str, PendingPod] = {}

    def attach(self, pods: Informer[Pod]) -> None:
        """Keep up with this informer of pods."""
        pods.add_handler(self.put_pod, lambda _, pod: self.put_pod(pod), self.remove_pod)

    def put_pod(self, pod: Pod) -> None:
        """Take a pod that came or changed: it is counted while it waits, and left out once it is bound or over."""
        uid = pod.metadata.uid
        waits = not pod.spec.node_name and not is_terminal(pod)
        if not waits or pod.spec.scheduler_name != self._cache.scheduler_name:
            self._pods.pop(uid, None)
        elif uid not in self._pods:
            reading = self._cache.readings.of(pod)
            if reading.asks_for_devices:
                gpus = 0
                with suppress(DialectError):
                    request = reading.request()
                    gpus = 0 if request is None else _at_peak(request)
                policy = node_policy_word(pod.metadata.annotations, self._default_policy)
                self._pods[uid] = PendingPod(pod.metadata.namespace, policy, gpus)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod that was deleted; one that is not known changes nothing."""
        self._pods.pop(pod.metadata.uid, None)

    def judged(self, uid: str, nodes_by_reason: Mapping[str, int]) -> None:
        """kube-scheduler asked about it: on so many nodes it does not fit for each reason; it fits where there is none.
        What most nodes lack is why it waits."""
        pod = self._pods.get(uid)
        if pod is not None:
            reason = max(
                sorted(nodes_by_reason), key=lambda each: nodes_by_reason[each], default=PendingReason.KUBE_SCHEDULER
            )
            self._pods[uid] = msgspec.structs.replace(pod, reason=reason)

    def totals(self) -> dict[tuple[str, str], PendingTotals]:
        """What waits, by namespace and policy; those of which nothing waits are left out."""
        found: dict[tuple[str, str], PendingTotals] = {}
        for pod in self._pods.values():
            found.setdefault((pod.namespace, pod.policy), PendingTotals()).add(
                PendingTotals(Counter([pod.reason]), pod.gpus)
            )
        return found


def _at_peak(request: PodRequest) -> int:
    return max(sum(each.devices.count for each in together) for together in phases(request.containers))
