"""What this node's agent reports to the scheduler beyond the pods' annotations, kept up to date.

Nothing is reported while every pod that requests devices carries its grant. A comparison costs a PodResources list, and
is made when a pod is found without a grant, when one ends, when the agent refused one, and periodically.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import structlog

from purser.adapters.pods import devices_asked
from purser.agent.allocation.book import Book
from purser.agent.allocation.holding import gpus_of_pod
from purser.agent.allocation.pods import NodePods
from purser.agent.host.latest import Latest
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError, ListedPod
from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes, RefusedPod
from purser.core.grant.reconcile import NodeRecords, PodBook, disputes_to_publish
from purser.core.model import Device
from purser.kube.backoff import Backoff, exponential_delay
from purser.kube.clock import Clock, SystemClock
from purser.kube.objects import Pod
from purser.kube.pods import has_started, is_terminal
from purser.kube.racing import until

log = structlog.get_logger("purser.agent")

MIN_COMPARISON_PERIOD_S = 0.1
"""After a reason to look: more often follow at once."""

MAX_COMPARISON_PERIOD_S = 60.0
"""Between two looks without any reason."""

TEARDOWN_TIMEOUT_S = 10.0
"""For how long kubelet may list devices of a pod that has ended, before that is reported: it tears the pod down
first."""

LISTING_RETRY_S = 1.0
"""The first pause after kubelet did not answer; pauses grow to `MAX_COMPARISON_PERIOD_S`."""

FIRST_DISPUTE_S = 1.0
"""How long a GPU is disputed whose pods are refused a second time; each further time lasts twice as long."""

MAX_DISPUTE_S = 60.0
"""For how long a GPU is disputed whose pods are refused again and again, at most."""

MAX_REFUSED = 64
"""Refusals reported at the same time: one for each pod that the scheduler granted wrongly and that has not ended."""


@dataclass(slots=True)
class _Refusal:
    pod: RefusedPod
    until: float
    """Monotonic seconds; it is reported at least until then."""
    is_published: bool = False


@dataclass(frozen=True, slots=True)
class _DisputePeriod:
    at: float
    repeats: int = 0
    """How often pods were refused again since the first time."""

    @property
    def seconds(self) -> float:
        """How long the GPU stays disputed."""
        return exponential_delay(FIRST_DISPUTE_S, MAX_DISPUTE_S, self.repeats - 1) if self.repeats else 0.0

    @property
    def is_remembered_until(self) -> float:
        return self.at + self.seconds + MAX_DISPUTE_S


class DisputeBackoff:
    """For how long GPUs stay disputed: twice as long each time that pods are refused there once more, up to
    `MAX_DISPUTE_S`. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._periods: dict[str, _DisputePeriod] = {}

    def record_refusal(self, uuids: Iterable[str], now: float, disputed: Collection[str]) -> float:
        """A pod with these GPUs was refused: for how many seconds they stay disputed.

        Pods that were on their way when a GPU got into dispute (``disputed``: it still is) are no second time.
        """
        for uuid in uuids:
            period = self._periods.get(uuid)
            if period is None or now >= period.is_remembered_until:
                self._periods[uuid] = _DisputePeriod(now)
            elif uuid not in disputed:
                self._periods[uuid] = _DisputePeriod(now, period.repeats + 1)
        return max((self._periods[uuid].seconds for uuid in uuids), default=0.0)

    def forget_old(self, now: float) -> None:
        """Of those that were not refused again for long, the next time is the first."""
        self._periods = {uuid: period for uuid, period in self._periods.items() if now < period.is_remembered_until}


class DisputeWatch:
    """Keeps ``report`` up to date: None until the first comparison."""

    def __init__(
        self,
        node: str,
        pods: NodePods,
        book: Book,
        kubelet: KubeletBooks,
        devices: Callable[[], Mapping[str, Device]],
        clock: Clock | None = None,
    ) -> None:
        self._node = node
        self._pods = pods
        self._book = book
        self._kubelet = kubelet
        self._devices = devices
        self._clock = clock or SystemClock()
        self._look = asyncio.Event()
        self._refusals: dict[str, _Refusal] = {}
        self._backoff = DisputeBackoff()
        self._reported_uids: frozenset[str] = frozenset()
        self._ended: dict[str, float] = {}
        """By uid of a pod that was ever said to have ended: monotonic seconds from which on it should hold nothing."""
        self._vanished: dict[str, float] = {}
        """The same by key, of pods that kubelet listed with GPUs at the last look, and the API server did not have."""
        self.report: Latest[NodeDisputes | None] = Latest(None)
        """What is to be published."""
        pods.pods.add_handler(
            on_add=self._on_pod, on_update=lambda _, new: self._on_pod(new), on_delete=self._on_deleted
        )
        pods.key_maps.add_handler(
            on_add=lambda _: self._look.set(),
            on_update=lambda *_: self._look.set(),
            on_delete=lambda _: self._look.set(),
        )

    def refused(self, pod: RefusedPod) -> None:
        """The agent refused a granted pod: its GPUs take no others until that is over and reported."""
        if pod.uid in self._refusals or len(self._refusals) >= MAX_REFUSED:
            return
        now = self._clock.monotonic()
        disputed = {uuid for each in self._refusals.values() for uuid in each.pod.uuids}
        self._refusals[pod.uid] = _Refusal(pod, now + self._backoff.record_refusal(pod.uuids, now, disputed))
        self._look.set()

    def devices_changed(self) -> None:
        """Before the driver answers, all GPUs in HAMi's annotations are reported, those of other nodes too."""
        self._look.set()

    def published(self, disputes: NodeDisputes) -> None:
        """The scheduler can read this now."""
        for each in disputes.refused:
            refusal = self._refusals.get(each.uid)
            if refusal is not None and not refusal.is_published:
                refusal.is_published = True
                self._look.set()

    async def run(self) -> None:
        """Look until cancelled."""
        await self._pods.pods.synced()
        await self._pods.key_maps.synced()
        retry = Backoff(LISTING_RETRY_S, MAX_COMPARISON_PERIOD_S)
        while True:
            self._look.clear()
            try:
                await self.look()
                retry.reset()
                pause = self._next_check_s()
            except KubeletError as error:
                log.warning("Cannot read from kubelet which devices pods hold", error=str(error))
                pause = retry.next()
            except Exception as error:  # one odd pod must not end the agent, nor its reports of the others
                pause = MAX_COMPARISON_PERIOD_S
                self._pods.pods.failures.report_loop_failure("comparing records", error, pause)
            await until(self._clock.sleep(pause), self._look.wait())
            await self._clock.sleep(MIN_COMPARISON_PERIOD_S)

    async def look(self) -> None:
        """Compare the books once. Raises `KubeletError`."""
        listing = await self._kubelet.list()
        books = self.books(listing)
        self._forget_settled()
        disputes = disputes_to_publish(
            books, [each.pod for each in self._refusals.values()], self._devices_of_ended_pods(listing)
        )
        self._reported_uids = frozenset(each.uid for each in disputes.held) | self._refusals.keys()
        if self.report.set(disputes) and not disputes.is_empty:
            log.warning(
                "The records of who holds the node's GPUs differ",
                held=len(disputes.held),
                refused=len(disputes.refused),
            )

    def books(self, listing: Iterable[ListedPod]) -> NodeRecords:
        """What the pods' annotations, this agent's book and kubelet say."""
        view, store = self._pods.view(), self._pods.pods.store
        pods = []
        for key in sorted(view.live):
            pod = store.get(key)
            problem = view.kept.get(key, view.problems.get(key))
            if pod is None or (problem is None and key not in view.grants):
                continue
            meta, counted = pod.metadata, None if key in view.kept else view.grants.get(key)
            pods.append(
                PodBook(
                    meta.namespace,
                    meta.name,
                    meta.uid,
                    asks=bool(devices_asked(pod)),
                    started=has_started(pod),
                    grant=counted,
                    problem="" if self._pods.is_ungranted(pod) else problem or "",
                )
            )
        devices = self._devices()
        held = {each.key: gpus_of_pod(each, store.get(each.key)) for each in listing}
        return NodeRecords(
            self._node,
            devices,
            tuple(pods),
            agent={uid: booked.grant for uid, booked in self._book.pods.items()},
            kubelet={key: uuids & devices.keys() if devices else uuids for key, uuids in held.items()},
        )

    def _devices_of_ended_pods(self, listing: Iterable[ListedPod]) -> list[HeldPod]:
        """What kubelet lists for pods that should hold nothing any more.

        A pod's status may say wrongly that it has ended; before it answers a list, kubelet releases the devices of pods
        that really have.
        """
        now, store, found = self._clock.monotonic(), self._pods.pods.store, []
        holders = [(each, uuids) for each in listing if (uuids := gpus_of_pod(each, store.get(each.key)))]
        self._track_vanished(now, (each.key for each, _ in holders if store.get(each.key) is None))
        for listed, uuids in holders:
            pod = store.get(listed.key)
            if pod is None:
                due, uid = self._vanished[listed.key], self._booked_uid(listed.key)
            elif is_terminal(pod):
                due, uid = self._ended.get(pod.metadata.uid, now), pod.metadata.uid
            else:
                continue
            if now >= due:
                found.append(HeldPod(listed.namespace, listed.name, uid, HeldReason.ENDED, uuids=tuple(sorted(uuids))))
        return found

    def _track_vanished(self, now: float, keys: Iterable[str]) -> None:
        """What vanished before the first look may have been reported by the previous agent: that is not taken back."""
        timeout_s = 0.0 if self.report.value is None else TEARDOWN_TIMEOUT_S
        self._vanished = {key: self._vanished.get(key, now + timeout_s) for key in keys}

    def _booked_uid(self, key: str) -> str:
        return next((uid for uid, pod in self._book.pods.items() if pod.grant.key == key), "")

    def _on_deleted(self, pod: Pod) -> None:
        self._ended.pop(pod.metadata.uid, None)
        if pod.metadata.uid in self._reported_uids or devices_asked(pod):  # kubelet may list it still
            self._look.set()

    def _on_pod(self, pod: Pod) -> None:
        if is_terminal(pod) and pod.metadata.uid not in self._ended and devices_asked(pod):
            # One that ended before the first look may have been reported by the previous agent: that is not taken back.
            timeout_s = 0.0 if self.report.value is None else TEARDOWN_TIMEOUT_S
            self._ended[pod.metadata.uid] = self._clock.monotonic() + timeout_s
            self._look.set()
        vanished = f"{pod.metadata.namespace}/{pod.metadata.name}" in self._vanished
        if (
            vanished
            or pod.metadata.uid in self._reported_uids
            or (has_started(pod) and self._pods.lacks_valid_grant(pod))
        ):
            self._look.set()

    def _forget_settled(self) -> None:
        """Refusals that are over, published, and no longer disputed."""
        now, store = self._clock.monotonic(), self._pods.pods.store
        for uid, refusal in list(self._refusals.items()):
            pod = store.by_uid(uid)
            if refusal.is_published and now >= refusal.until and (pod is None or is_terminal(pod)):
                del self._refusals[uid]
        self._backoff.forget_old(now)

    def _next_check_s(self) -> float:
        now = self._clock.monotonic()
        refusal_waits = [each.until - now for each in self._refusals.values() if each.until > now]
        ending = [due - now for due in (*self._ended.values(), *self._vanished.values()) if due > now]
        disputes = self.report.value
        if disputes is not None and any(each.why is HeldReason.ENDED for each in disputes.held):
            ending.append(TEARDOWN_TIMEOUT_S)  # kubelet gives no notice when it releases devices
        return max(0.0, min([MAX_COMPARISON_PERIOD_S, *refusal_waits, *ending]))
