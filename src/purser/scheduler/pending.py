"""Pods that ask for GPUs and wait, and why: for metrics and the read API."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import msgspec

from purser.core.dialects import DialectError
from purser.core.dialects.policies import node_policy_word
from purser.core.model import PodRequest
from purser.core.pod.phases import phases
from purser.core.state import StateAsk, state_ask
from purser.kube import Informer
from purser.kube.objects import Pod
from purser.kube.pod_details import scheduler_message
from purser.kube.pods import is_terminal
from purser.recent import Recent
from purser.scheduler.cache import ClusterCache
from purser.scheduler.gates import gated_message
from purser.scheduler.reasons import PendingReason

MAX_MESSAGES = 1024
"""Messages that are kept once for all pods that have them."""


class PendingPod(msgspec.Struct, frozen=True):
    """A pod that asks for GPUs and is on no node yet."""

    namespace: str
    name: str
    since: str
    """When it was created, RFC 3339; empty: not known."""
    priority: int
    policy: str
    """`node_policy_word`."""
    gpus: int
    """GPUs that it has at once at most, a share counted as one; 0: the request cannot be read."""
    nodes_by_reason: tuple[tuple[str, int], ...] = ()
    """On how many nodes it did not fit for each reason, most first; only the replica that places pods knows."""
    message: str = ""
    """What kube-scheduler was told."""
    suggestion: str = ""
    """By which change of its own it would fit, as `PodAdvisor` found; empty: none is known."""
    fits: bool = False
    """Whether kube-scheduler asked last about nodes of which one takes it; else it has not asked, or none does."""
    last_message: str = ""
    """What kube-scheduler said last of it, whoever refused it: the pod itself has it. Empty: nothing yet."""
    gated: str = ""
    """Which gates keep kube-scheduler from trying it; empty: none."""
    asks: StateAsk | None = None
    """Of each GPU."""

    @property
    def reason(self) -> str:
        """The word of what most nodes lack; of a pod that Purser does not refuse a `PendingReason`."""
        if self.nodes_by_reason:
            return self.nodes_by_reason[0][0]
        return PendingReason.SCHEDULING_GATED if self.gated else PendingReason.KUBE_SCHEDULER


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
        self._messages: Recent[str, str] = Recent(MAX_MESSAGES)
        """Each once, however many pods wait for the same."""
        self.on_gone: Callable[[str], None] = lambda uid: None
        """Called with the uid of a pod that waits no more, though it holds nothing."""

    def attach(self, pods: Informer[Pod]) -> None:
        """Keep up with this informer of pods."""
        pods.add_handler(self.put_pod, lambda _, pod: self.put_pod(pod), self.remove_pod)

    def put_pod(self, pod: Pod) -> None:
        """Take a pod that came or changed: it is counted while it waits, and left out once it is bound or over."""
        uid = pod.metadata.uid
        waits = not pod.spec.node_name and not is_terminal(pod)
        if not waits or pod.spec.scheduler_name != self._cache.scheduler_name:
            self._forget(uid)
        elif uid not in self._pods:
            reading = self._cache.readings.of(pod)
            if reading.asks_for_devices:
                request = None
                with suppress(DialectError):
                    request = reading.request()
                meta, priority = pod.metadata, pod.spec.priority
                policy = node_policy_word(meta.annotations, self._default_policy)
                self._pods[uid] = PendingPod(
                    meta.namespace,
                    meta.name,
                    meta.creation_timestamp,
                    priority,
                    policy,
                    0 if request is None else peak_gpu_count(request),
                    asks=None if request is None else state_ask(request),
                )
        if uid in self._pods:
            self._follow(uid, pod)

    def _follow(self, uid: str, pod: Pod) -> None:
        """What changes of a pod that waits: kube-scheduler's message, and its gates, which can only be removed."""
        known, said = self._pods[uid], scheduler_message(pod)
        gated = gated_message(pod) if pod.spec.scheduling_gates else ""
        if (known.last_message, known.gated) != (said, gated):
            self._pods[uid] = msgspec.structs.replace(known, last_message=said, gated=gated)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod that was deleted; one that is not known changes nothing."""
        self._forget(pod.metadata.uid)

    def _forget(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None and self._cache.ledger.grant(uid) is None:
            self.on_gone(uid)

    def pods(self) -> Iterator[tuple[str, PendingPod]]:
        """Each by its uid; more may come, and some go, while they are gone through."""
        for uid in list(self._pods):
            if (pod := self._pods.get(uid)) is not None:
                yield uid, pod

    def message(self, uid: str) -> str:
        """What kube-scheduler was told of a pod; empty: nothing, or the pod does not wait."""
        pod = self._pods.get(uid)
        return "" if pod is None else pod.message

    def judged(self, uid: str, nodes_by_reason: Mapping[str, int], message: str = "", suggestion: str = "") -> None:
        """kube-scheduler asked about it: on so many nodes it does not fit for each reason; it fits where there is none.
        What most nodes lack is why it waits. ``message``: what kube-scheduler is told; ``suggestion``: what is still
        known from before."""
        pod = self._pods.get(uid)
        if pod is not None:
            counts = tuple(sorted(nodes_by_reason.items(), key=lambda each: (-each[1], each[0])))
            self._pods[uid] = msgspec.structs.replace(
                pod,
                nodes_by_reason=counts,
                fits=not counts,
                message=self._messages.recall(message, lambda: message),
                suggestion=self._messages.recall(suggestion, lambda: suggestion),
            )

    def advised(self, uid: str, suggestion: str) -> None:
        """Changes of the pod were tried: by which it would fit; empty: by none."""
        pod = self._pods.get(uid)
        if pod is not None and pod.suggestion != suggestion:
            kept = self._messages.recall(suggestion, lambda: suggestion)
            self._pods[uid] = msgspec.structs.replace(pod, suggestion=kept)

    def forget_reasons(self) -> None:
        """Nobody asks this replica any more, or it reads the cluster anew: what it found is of another time."""
        for uid, pod in self._pods.items():
            if pod.nodes_by_reason or pod.message or pod.suggestion or pod.fits:
                self._pods[uid] = msgspec.structs.replace(
                    pod, nodes_by_reason=(), fits=False, message="", suggestion=""
                )

    def totals(self) -> dict[tuple[str, str], PendingTotals]:
        """What waits, by namespace and policy; those of which nothing waits are left out."""
        found: dict[tuple[str, str], PendingTotals] = {}
        for pod in self._pods.values():
            found.setdefault((pod.namespace, pod.policy), PendingTotals()).add(
                PendingTotals(Counter([pod.reason]), pod.gpus)
            )
        return found


def peak_gpu_count(request: PodRequest) -> int:
    """How many GPUs a pod has at once at most, a share counted as one."""
    return max(sum(each.devices.count for each in together) for together in phases(request.containers))
