"""Leader election on a Lease, and following another component's Lease.

The rule is client-go's: clocks of different machines are never compared. A lease has expired when this process has not
seen it change for its duration, by its monotonic clock. It is taken with the resourceVersion that was read, so that of
two candidates one gets a conflict. The leader counts time from before it sent a renewal, so that it always stops before
another one may start.
"""

import asyncio
import math
import random
from collections.abc import Callable
from typing import Never

import structlog

from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock, micro_timestamp
from purser.kube.errors import AlreadyExistsError, ConflictError, KubeError, NotFoundError
from purser.kube.informer import Informer
from purser.kube.objects import Lease
from purser.kube.racing import until
from purser.kube.resources import LEASES, Raw

log = structlog.get_logger("purser.kube")

Listener = Callable[[bool], None]

_RELEASE_S = 5.0
_CANDIDATE_JITTER = 1.2  # candidates look again after 1 to 2.2 retry periods, as client-go's do
_POLL_PERIOD_S = 1.0


class _Flag:
    """A bool that can be waited for and listened to."""

    def __init__(self) -> None:
        self.value = False
        self._events = {True: asyncio.Event(), False: asyncio.Event()}
        self._events[False].set()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)
        if self.value:
            listener(True)

    async def wait(self, value: bool) -> None:
        await self._events[value].wait()

    def set(self, value: bool) -> None:
        if value == self.value:
            return
        self.value = value
        self._events[value].set()
        self._events[not value].clear()
        for listener in self._listeners:
            try:
                listener(value)
            except Exception:
                log.exception("A listener to a lease failed")


class _Observation:
    """What was last seen of a lease, and how long ago that was new, by our own clock."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._record: object = None
        self._seen_at = -math.inf

    def note(self, record: object) -> None:
        if record != self._record:
            self._record = record
            self._seen_at = self._clock.monotonic()

    @property
    def age_s(self) -> float:
        return self._clock.monotonic() - self._seen_at


class LeaderElector:
    """Competes for a lease under an identity that no other process has; durations are in seconds.

    A leader that cannot renew for ``renew_deadline`` steps down, before others may take over at ``lease_duration``.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_duration: float = 15,
        renew_deadline: float = 10,
        retry_period: float = 2,
        clock: Clock | None = None,
    ):
        if not lease_duration > renew_deadline > retry_period > 0:
            raise ValueError(
                "lease_duration > renew_deadline > retry_period > 0 is required, or two replicas could "
                "lead concurrently"
            )
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_duration = lease_duration
        self._renew_deadline = renew_deadline
        self._retry_period = retry_period
        self._clock = clock or SystemClock()
        self._observed = _Observation(self._clock)
        self._leading = _Flag()
        self._renewed_at = -math.inf
        self._waits_for = ""

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now; false from the deadline on, even when the event loop was held up."""
        return self._leading.value and self._time_left() > 0

    def add_listener(self, listener: Listener) -> None:
        """Have a plain function called with True on becoming leader and with False on ceasing to be."""
        self._leading.listen(listener)

    async def wait_until_acquired(self) -> None:
        """Return once this process leads."""
        await self._leading.wait(True)

    async def lost(self) -> None:
        """Return once this process does not lead, or no longer."""
        await self._leading.wait(False)

    async def run(self) -> Never:
        """Compete until cancelled; then first stop leading, and after that free the lease."""
        try:
            while True:
                await self._try_acquire()
                await self._clock.sleep(self._pause())
        finally:
            if self._leading.value:
                self._set_leading(False, "shutting down")
                await self._release()

    async def _try_acquire(self) -> None:
        """Try once, and no longer than a leader has time left."""
        started = self._clock.monotonic()
        limit = self._time_left() if self._leading.value else self._renew_deadline
        held = await until(self._acquire_or_renew(), self._clock.sleep(limit))
        if held:
            if self._time_left() <= 0:  # whoever asked `is_leader` meanwhile left something undone
                self._set_leading(False, "the lease was renewed too late")
            self._renewed_at, self._waits_for = started, ""
            self._set_leading(True, "this replica holds the lease")
        elif held is False:
            self._set_leading(False, "another replica holds the lease")
        elif self._time_left() <= 0:
            self._set_leading(False, "the lease could not be renewed in time")

    async def _acquire_or_renew(self) -> bool | None:
        """Whether this replica holds the lease after this attempt; None when that is not known."""
        try:
            lease = await self._client.get(LEASES.raw(), self._name, self._namespace)
            return await self._write_if_free(lease)
        except NotFoundError:
            return await self._create()
        except KubeError as error:
            self._note_failure(error)
            return None

    async def _write_if_free(self, lease: Raw) -> bool:
        spec: Raw = lease.get("spec") or {}
        self._observed.note(spec)
        holder = spec.get("holderIdentity") or ""
        duration = spec.get("leaseDurationSeconds") or self._lease_duration
        if holder not in ("", self._identity) and self._observed.age_s < duration:
            self._note_holder(holder)
            return False
        taken = await self._client.replace(LEASES.raw(), lease | {"spec": spec | self._claim(spec)})
        self._observed.note(taken.get("spec"))
        return True

    async def _create(self) -> bool | None:
        metadata = {"name": self._name, "namespace": self._namespace}
        try:
            await self._client.create(LEASES, {"metadata": metadata, "spec": self._claim({})})
        except KubeError as error:
            self._note_failure(error)
            return None
        return True

    def _note_holder(self, holder: str) -> None:
        if holder != self._waits_for:
            log.info("Waiting for the lease, which another replica holds", lease=self._name, holder=holder)
            self._waits_for = holder

    def _note_failure(self, error: KubeError) -> None:
        if isinstance(error, ConflictError | AlreadyExistsError):
            log.debug("The lease was changed by another writer", lease=self._name)
        else:
            log.warning("The lease cannot be read or renewed", lease=self._name, error=str(error))

    def _claim(self, spec: Raw) -> Raw:
        now = micro_timestamp(self._clock.now())
        claim = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._lease_duration),
            "renewTime": now,
        }
        if spec.get("holderIdentity") != self._identity:
            claim |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", -1) + 1}
        return claim

    async def _release(self) -> None:
        if await until(self._free_lease(), self._clock.sleep(_RELEASE_S)) is None:
            log.warning("The lease could not be released and will expire", lease=self._name)

    async def _free_lease(self) -> bool | None:
        try:
            lease = await self._client.get(LEASES.raw(), self._name, self._namespace)
            spec: Raw = lease.get("spec") or {}
            if spec.get("holderIdentity") == self._identity:
                freed = spec | {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(LEASES.raw(), lease | {"spec": freed})
        except KubeError as error:
            self._note_failure(error)
            return None
        return True

    def _set_leading(self, leading: bool, why: str) -> None:
        if leading != self._leading.value:
            log.info("Leading" if leading else "No longer leading", lease=self._name, why=why)
        self._leading.set(leading)

    def _time_left(self) -> float:
        return self._renewed_at + self._renew_deadline - self._clock.monotonic()

    def _pause(self) -> float:
        if self._leading.value:
            return max(0.0, min(self._retry_period, self._time_left()))
        return self._retry_period * (1 + _CANDIDATE_JITTER * random.random())


class LeaseFollower:
    """Says whether a lease is held by a process on this host: kube-scheduler beside us, in the same pod.

    kube-scheduler's identity is ``<hostname>_<uuid>``. A holder that stopped renewing no longer counts.
    """

    def __init__(self, client: Client, namespace: str, name: str, hostname: str, *, clock: Clock | None = None):
        self._clock = clock or SystemClock()
        self._prefix = f"{hostname}_"
        self._observed = _Observation(self._clock)
        self._lease: Lease | None = None
        self._held = _Flag()
        self._informer = Informer(client, LEASES, namespace, field_selector=f"metadata.name={name}", clock=self._clock)
        self._informer.add_handler(self._note, lambda _, new: self._note(new), lambda _: self._note(None))

    @property
    def is_held_here(self) -> bool:
        """Whether the holder is on this host and renewed within its duration."""
        if self._lease is None or not self._lease.spec.holder_identity.startswith(self._prefix):
            return False
        return self._observed.age_s < self._lease.spec.lease_duration_seconds

    @property
    def holder_host(self) -> str:
        """Host name of the holder, which is its pod's name; empty: nobody holds the lease."""
        if self._lease is None or self._observed.age_s >= self._lease.spec.lease_duration_seconds:
            return ""
        return self._lease.spec.holder_identity.rpartition("_")[0]

    def add_listener(self, listener: Listener) -> None:
        """Have a plain function called with True when the lease comes to this host, and with False when it goes."""
        self._held.listen(listener)

    async def synced(self) -> None:
        """Return once the lease has been looked at for the first time."""
        await self._informer.synced()

    async def run(self) -> Never:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            while True:
                self._held.set(self.is_held_here)
                await self._clock.sleep(_POLL_PERIOD_S)

    def _note(self, lease: Lease | None) -> None:
        self._lease = lease
        self._observed.note(lease and lease.spec)
        self._held.set(self.is_held_here)
