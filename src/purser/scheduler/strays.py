"""Pods that ask for devices and were created while nobody answered the webhook.

They still name the default scheduler, which knows none of the resources that exist in Purser's book alone, so that they
would stay Pending for ever. A pod's scheduler cannot be changed. Where a controller made the pod it is therefore
deleted, and the controller makes it anew, this time past the webhook; it was never bound, so nothing is lost. Anybody
else is told by an event.

Pods and namespaces that keep the webhook away (label ``purser.dev/webhook: ignore``) are left alone. Should the new pod
be a stray again, the webhook does not see it for some other reason: its owner's pods then rest for a minute, twice as
long each time, up to an hour.
"""

from collections.abc import Callable

import msgspec
import structlog

from purser.core.dialects import asks_for_devices
from purser.core.names import IGNORE_WEBHOOK, WEBHOOK_LABELS
from purser.kube.adapters import pod_spec
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.objects import Namespace, OwnerReference, Pod
from purser.kube.resources import PODS, key_of, ref_of
from purser.kube.workqueue import WorkQueue, run_workers
from purser.scheduler.webhook_rules import DEFAULT_SCHEDULER

log = structlog.get_logger("purser.scheduler")

REASON = "MissedWebhook"
PATIENCE_S = 15.0
"""For how long a stray is left alone: its controller must have heard of it. After a restart of the API server that may
take ten seconds, and for a pod that is gone by then a controller waits five minutes before it makes another."""
_FIRST_REST_S = 60.0
_LONGEST_REST_S = 3600.0
_INACTIVE_S = 5.0


class Waves(msgspec.Struct):
    """When an owner's strays may be deleted: at once those seen before its last wave, later ones after a rest."""

    at: float
    rest_s: float = _FIRST_REST_S

    def is_over(self, now: float) -> bool:
        """Whether the owner's pods have come past the webhook for so long that nothing need be remembered."""
        return now > self.at + self.rest_s + _LONGEST_REST_S

    def wait_s(self, seen_at: float, now: float) -> float:
        """Seconds until a pod first seen at ``seen_at`` may go; 0 begins a new wave where it is a later one."""
        if seen_at <= self.at:
            return 0.0
        if now < self.at + self.rest_s:
            return self.at + self.rest_s - now
        self.at, self.rest_s = now, min(2 * self.rest_s, _LONGEST_REST_S)
        return 0.0


class Strays:
    """Finds strays among the pods of an informer, and sees to them."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        namespaces: Informer[Namespace],
        events: EventRecorder,
        is_active: Callable[[], bool],
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        self._client = client
        self._pods = pods
        self._namespaces = namespaces
        self._events = events
        self._is_active = is_active
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._queue: WorkQueue[str] = WorkQueue(clock=self._clock)
        self._seen_at: dict[str, float] = {}
        self._told: set[str] = set()
        self._waves: dict[str, Waves] = {}

    async def run(self) -> None:
        """See to strays until cancelled; call it once the webhook answers."""
        self._pods.add_handler(self._put, lambda _, pod: self._put(pod), self._forget)
        await run_workers(self._queue, self._see_to)

    def _put(self, pod: Pod) -> None:
        if self._is_stray(pod):
            self._seen_at.setdefault(pod.metadata.uid, self._clock.monotonic())
            self._queue.add(key_of(pod))

    def _forget(self, pod: Pod) -> None:
        self._seen_at.pop(pod.metadata.uid, None)
        self._told.discard(pod.metadata.uid)

    def _is_stray(self, pod: Pod) -> bool:
        waits = not pod.spec.node_name and pod.status.phase == "Pending" and not pod.metadata.deletion_timestamp
        return (
            waits
            and pod.spec.scheduler_name == DEFAULT_SCHEDULER
            and asks_for_devices(pod_spec(pod))
            and not self._keeps_away(pod)
        )

    def _keeps_away(self, pod: Pod) -> bool:
        namespace = self._namespaces.store.get(pod.metadata.namespace)
        labels = [pod.metadata.labels, namespace.metadata.labels if namespace else {}]
        return any(each.get(label) == IGNORE_WEBHOOK for each in labels for label in WEBHOOK_LABELS)

    async def _see_to(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None or not self._is_stray(pod):
            return
        if not self._is_active():
            self._queue.add_after(key, _INACTIVE_S)
            return
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        if owner is None:
            self._tell(pod)
        elif wait_s := self._wait_s(pod, owner):
            self._queue.add_after(key, wait_s)
        else:
            await self._delete(pod, owner)

    def _wait_s(self, pod: Pod, owner: OwnerReference) -> float:
        now = self._clock.monotonic()
        seen_at = self._seen_at.get(pod.metadata.uid, now)
        if now < seen_at + self._patience_s:
            return seen_at + self._patience_s - now
        self._waves = {uid: waves for uid, waves in self._waves.items() if not waves.is_over(now)}
        return self._waves.setdefault(owner.uid, Waves(now)).wait_s(seen_at, now)

    async def _delete(self, pod: Pod, owner: OwnerReference) -> None:
        self._events.event(
            ref_of(PODS, pod),
            REASON,
            f"The pod was created while Purser's webhook could not be reached, so that no scheduler can give it a GPU: "
            f"it is deleted, and {owner.kind} {owner.name} creates it anew",
            type="Warning",
        )
        log.info("A pod that missed the webhook is deleted", pod=key_of(pod), owner=f"{owner.kind} {owner.name}")
        try:
            await self._client.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
        except (NotFoundError, ConflictError):
            log.debug("It was gone already", pod=key_of(pod))

    def _tell(self, pod: Pod) -> None:
        if pod.metadata.uid in self._told:
            return
        self._told.add(pod.metadata.uid)
        self._events.event(
            ref_of(PODS, pod),
            REASON,
            "The pod was created while Purser's webhook could not be reached, so that no scheduler can give it a GPU: "
            "delete it and create it again",
            type="Warning",
        )
