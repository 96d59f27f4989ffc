"""Pods that request devices and were created while no replica served the webhook.

They still name the default scheduler. It leaves them Pending, or binds them to a node that lists what they ask for,
where the agent lets no container of theirs start. A pod's schedulerName cannot be changed. A controller's pod is
therefore deleted, and the controller recreates it, this time through the webhook; it never ran, so nothing is lost.
Other pods get an event.

Pods of a scheduler that Purser does not replace are left alone and get an event: users do not see the webhook's
warnings on a controller's pods. Nor are pods deleted that ask for other vendors' devices: the default scheduler may
give them some, and their devices may be what they wait for.

Pods of Purser, or of a scheduler that it replaces, that request GPUs by unserved resource names get an event, too:
kube-scheduler only says that a resource is missing.

Nothing is deleted while the API server does not call the webhook: the new pod would miss it, too.

Pods and namespaces with the label ``purser.dev/webhook: ignore`` are left alone. If the new pod misses a webhook that
is called, it is bypassed for another reason: its owner's pods are then left for a minute, doubled each time up to an
hour.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec
import structlog

from purser.core.dialects import vendor_families
from purser.core.dialects.unserved import unserved_words
from purser.core.names import GRANT_ANNOTATION, ignore_label_of
from purser.kube.client import Client
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.objects import DEFAULT_SCHEDULER, Namespace, OwnerReference, Pod
from purser.kube.pods import controller_of
from purser.kube.resources import PODS, key_of, ref_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.cache import ClusterCache
from purser.scheduler.leadership_gate import INACTIVE_RECHECK_PERIOD_S
from purser.scheduler.reasons import SchedulerReason
from purser.scheduler.webhook import PROBE_PERIOD_S

log = structlog.get_logger("purser.scheduler")

CONTROLLER_NOTICE_TIMEOUT_S = 15.0
"""For how long such a pod is left alone: its controller must have heard of it. After a restart of the API server that
may take ten seconds, and for a pod that is gone by then a controller waits five minutes before it makes another."""
AGENT_REPORT_PERIOD_S = 5.0
"""Between two looks whether its node's agent has reported a bound pod that has not started."""
_INITIAL_BACKOFF_S = 60.0
_MAX_BACKOFF_S = 3600.0


class RecreationBackoff(msgspec.Struct):
    """When an owner's pods may be deleted: at once those seen before its last wave, later ones after a rest.

    All times are of one monotonic clock, in seconds.
    """

    at: float
    rest_s: float = _INITIAL_BACKOFF_S

    def is_over(self, now: float) -> bool:
        """Whether the owner's pods have come past the webhook for so long that nothing need be remembered."""
        return now > self.at + self.rest_s + _MAX_BACKOFF_S

    def wait_s(self, seen_at: float, now: float) -> float:
        """Seconds until a pod first seen at ``seen_at`` may go; 0 begins a new wave where it is a later one."""
        if seen_at <= self.at:
            return 0.0
        if now < self.at + self.rest_s:
            return self.at + self.rest_s - now
        self.at, self.rest_s = now, min(2 * self.rest_s, _MAX_BACKOFF_S)
        return 0.0


class MissedPods:
    """Finds pods that missed the webhook among the pods of an informer, and sees to them."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        pods: Informer[Pod],
        namespaces: Informer[Namespace],
        events: EventRecorder,
        is_active: Callable[[], bool],
        is_webhook_called: Callable[[Pod], Awaitable[bool]],
        adopted: Collection[str] = (),
        served: Collection[str] = (),
        managed: Collection[str] = (),
    ) -> None:
        """``is_active``: whether this replica is the one that acts. ``is_webhook_called``: whether another pod like
        this one would reach the webhook now. ``adopted``: schedulers whose pods are Purser's.
        ``served``: those who place theirs themselves, as they should. ``managed``: see `unserved_words`."""
        self._client = client
        self._cache = cache
        self._pods = pods
        self._namespaces = namespaces
        self._events = events
        self._is_active = is_active
        self._is_webhook_called = is_webhook_called
        self._replaced_schedulers = (DEFAULT_SCHEDULER, *adopted)
        self._served = frozenset(served)
        self._managed = managed
        self._queue: WorkQueue[str] = WorkQueue(clock=cache.clock)
        self._seen_at: dict[str, float] = {}
        self._reported: dict[str, str] = {}
        """By uid: the message of the pod's last event."""
        self._backoffs: dict[str, RecreationBackoff] = {}

    async def run(self) -> None:
        """See to them until cancelled; call it once the webhook answers."""
        self._pods.add_handler(self._put, lambda _, pod: self._put(pod), self._forget)
        await run_workers(self._queue, self._reconcile, on_failure=self._failed)

    def _failed(self, key: str, error: Exception) -> None:
        pod = self._pods.store.get(key)
        if pod is not None:
            self._client.failures.failed(PODS, pod, error)

    def _put(self, pod: Pod) -> None:
        if self._could_be_withheld(pod) or self._is_stray(pod) or self._message(pod):
            self._seen_at.setdefault(pod.metadata.uid, self._cache.clock.monotonic())
            self._queue.add(key_of(pod))

    def _forget(self, pod: Pod) -> None:
        self._seen_at.pop(pod.metadata.uid, None)
        self._reported.pop(pod.metadata.uid, None)

    def _is_stray(self, pod: Pod) -> bool:
        """Whether the webhook would have given it another scheduler."""
        return pod.spec.scheduler_name in self._replaced_schedulers and self._waits_for_devices(pod)

    def _message(self, pod: Pod) -> tuple[SchedulerReason, str] | None:
        """Reason and message of an event that a pod should have, and has not had."""
        found = self._obstacle(pod)
        return None if found is None or self._reported.get(pod.metadata.uid) == found[1] else found

    def _obstacle(self, pod: Pod) -> tuple[SchedulerReason, str] | None:
        """Why a pod waits that Purser does not place, as far as users cannot see it elsewhere."""
        if pod.spec.scheduler_name in (self._cache.scheduler_name, *self._replaced_schedulers):
            hints = self._unserved_hints(pod) if self._is_waiting(pod) else ()
            return (SchedulerReason.NOT_SERVED, _joined_hints(hints)) if hints else None
        if pod.spec.scheduler_name in self._served or not self._waits_for_devices(pod):
            return None
        return SchedulerReason.OTHER_SCHEDULER, _OTHER_SCHEDULER_MESSAGE.format(pod.spec.scheduler_name[:63])

    def _waits_for_devices(self, pod: Pod) -> bool:
        waits = self._is_waiting(pod) or (self._is_bound_without_grant(pod) and self._is_withheld(pod))
        return waits and self._cache.readings.of(pod).asks_for_devices

    def _could_be_withheld(self, pod: Pod) -> bool:
        is_bound = pod.spec.scheduler_name in self._replaced_schedulers and self._is_bound_without_grant(pod)
        return is_bound and self._cache.readings.of(pod).asks_for_devices

    def _is_bound_without_grant(self, pod: Pod) -> bool:
        """As far as the pod itself says; see `_is_withheld`."""
        is_bound = bool(pod.spec.node_name) and pod.status.phase == "Pending" and not pod.metadata.deletion_timestamp
        return is_bound and GRANT_ANNOTATION not in pod.metadata.annotations and not self._ignores_webhook(pod)

    def _is_withheld(self, pod: Pod) -> bool:
        """Whether kubelet took a bound pod, and the agent, which reports it, lets it not start."""
        return self._cache.disputes.is_reported(pod.spec.node_name, pod.metadata.uid)

    def _may_be_deleted(self, pod: Pod) -> bool:
        """Of a vendor's devices the default scheduler may have some."""
        return not vendor_families(self._cache.readings.of(pod).spec)

    def _unserved_hints(self, pod: Pod) -> tuple[str, ...]:
        there = self._cache.gpus()
        listed = there.mig_resources if there else ()
        spec = self._cache.readings.of(pod).spec
        return unserved_words(spec, self._cache.offers, self._cache.has_label, lambda: listed, managed=self._managed)

    def _is_waiting(self, pod: Pod) -> bool:
        """A pod with scheduling gates waits for whoever set them."""
        waits = not pod.spec.node_name and pod.status.phase == "Pending" and not pod.metadata.deletion_timestamp
        return waits and not pod.spec.scheduling_gates and not self._ignores_webhook(pod)

    def _ignores_webhook(self, pod: Pod) -> bool:
        namespace = self._namespaces.store.get(pod.metadata.namespace)
        return bool(ignore_label_of(pod.metadata.labels) or (namespace and ignore_label_of(namespace.metadata.labels)))

    async def _reconcile(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None:
            return
        if not (self._is_stray(pod) or self._message(pod)):
            if self._could_be_withheld(pod):  # its agent may not have reported it yet
                self._queue.add_after(key, AGENT_REPORT_PERIOD_S)
            return
        if not self._is_active():
            self._queue.add_after(key, INACTIVE_RECHECK_PERIOD_S)
            return
        if not self._is_stray(pod):
            if wait_s := self._notice_time_left_s(pod):  # the scheduler that it names may place it
                self._queue.add_after(key, wait_s)
            elif message := self._message(pod):
                self._emit_event(pod, *message)
            return
        owner = controller_of(pod) if self._may_be_deleted(pod) else None
        if owner is None:
            self._emit_event(pod, SchedulerReason.MISSED_WEBHOOK, _MISSED_MESSAGE)
        elif wait_s := self._notice_time_left_s(pod):
            self._queue.add_after(key, wait_s)
        elif not await self._is_webhook_called(pod):
            self._emit_event(
                pod, SchedulerReason.MISSED_WEBHOOK, _WEBHOOK_AWAY_MESSAGE.format(f"{owner.kind} {owner.name}")
            )
            self._queue.add_after(key, PROBE_PERIOD_S)
        elif wait_s := self._backoff_left_s(pod, owner):
            self._queue.add_after(key, wait_s)
        else:
            await self._delete(pod, owner)

    def _backoff_left_s(self, pod: Pod, owner: OwnerReference) -> float:
        now = self._cache.clock.monotonic()
        self._backoffs = {uid: backoff for uid, backoff in self._backoffs.items() if not backoff.is_over(now)}
        seen_at = self._seen_at.get(pod.metadata.uid, now)
        return self._backoffs.setdefault(owner.uid, RecreationBackoff(now)).wait_s(seen_at, now)

    def _notice_time_left_s(self, pod: Pod) -> float:
        now = self._cache.clock.monotonic()
        return max(self._seen_at.get(pod.metadata.uid, now) + CONTROLLER_NOTICE_TIMEOUT_S - now, 0.0)

    async def _delete(self, pod: Pod, owner: OwnerReference) -> None:
        self._events.event(
            ref_of(PODS, pod),
            SchedulerReason.MISSED_WEBHOOK,
            f"The API server did not call Purser's webhook for the pod, so no scheduler can give it a GPU: "
            f"the pod is deleted, and {owner.kind} {owner.name} recreates it",
            type="Warning",
        )
        log.info("Deleting a pod that missed the webhook", pod=key_of(pod), owner=(f"{owner.kind} {owner.name}"))
        meta = pod.metadata
        try:
            await self._client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except (NotFoundError, ConflictError):  # one that was bound meanwhile stays
            log.debug("The pod was already gone or changed", pod=key_of(pod))

    def _emit_event(self, pod: Pod, reason: SchedulerReason, message: str) -> None:
        if self._reported.get(pod.metadata.uid) == message:
            return
        self._reported[pod.metadata.uid] = message
        self._events.event(ref_of(PODS, pod), reason, message, type="Warning")


def _joined_hints(hints: Sequence[str]) -> str:
    """Of several words of one system the first hint says enough."""
    return "; ".join({hint.partition(":")[2]: hint for hint in reversed(hints)}.values())


_MISSED_MESSAGE = (
    "The API server did not call Purser's webhook for the pod, or the webhook did not serve the pod's resource yet, so "
    "Purser does not place the pod: delete and recreate it"
)
_WEBHOOK_AWAY_MESSAGE = (
    "The pod was created while the API server did not call Purser's webhook, and the API server still does not call "
    "it. Once it does, Purser deletes the pod, and {} recreates it"
)
_OTHER_SCHEDULER_MESSAGE = (
    'The pod requests GPUs, but its schedulerName is "{}", so Purser does not place it: recreate it without '
    "schedulerName, or ask an administrator to add the name to scheduler.adoptSchedulerNames of Purser's chart"
)
