"""The lives of a node's pods: admitted one at a time, started and ended each on its own."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from typing import Any

import structlog
from msgspec.structs import replace

from purser.core.kubelet import cpumanager, devicemanager
from purser.core.kubelet.asks import ResourceManager
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.pod import QosClass
from purser.kube.client import Client
from purser.kube.clock import Clock, timestamp
from purser.kube.errors import ConflictError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, ref_of
from purser.kube.retrying import retry_until_accepted
from purser.lab.components import Component
from purser.lab.kubelet.admission import (
    AdmissionError,
    RunOptions,
    admit,
    allocate_at_creation,
    lacks_devices,
    run_options,
)
from purser.lab.kubelet.books import Books
from purser.lab.kubelet.endpoints import Endpoints, PluginError
from purser.lab.kubelet.node import NodeSettings, capacity_and_allocatable
from purser.lab.kubelet.podresources import KnownPod
from purser.lab.kubelet.pods import (
    ContainerView,
    Raw,
    containers_of,
    ended_status,
    ephemeral_containers_of,
    ephemeral_status,
    is_deleted,
    is_finished,
    pod_environment,
    rejected_status,
    run_seconds,
    running_status,
    uid_of,
    waiting_status,
)
from purser.lab.kubelet.predicates import check_room
from purser.lab.kubelet.runtime import ContainerRecord, Runtime

_SIGTERM_EXIT_CODE = 143
_RECONCILE_S = 10.0
"""cpuManagerReconcilePeriod."""
_CREATE_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 10.0)
_RAW_PODS = PODS.raw()

log = structlog.get_logger("purser.lab.kubelet")


class PodWorkers:
    """Everything that happens to pods on one node. Handlers are called by the informer; `run` does the work."""

    def __init__(
        self,
        settings: NodeSettings,
        client: Client,
        books: Books,
        endpoints: Endpoints,
        runtime: Runtime,
        recorder: EventRecorder,
        clock: Clock,
        on_rejection: Callable[[str], None],
        process_of: Callable[[Raw], Component | None],
        on_end: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._client = client
        self._books = books
        self._endpoints = endpoints
        self._runtime = runtime
        self._recorder = recorder
        self._clock = clock
        self._on_rejection = on_rejection
        self._process_of = process_of
        self._on_end = on_end
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._seen: dict[str, Raw] = {}
        """By uid: every pod of the node, as last reported."""
        self._known: dict[str, Raw] = {}
        """By uid: those whose admission has begun."""
        self._rejected: set[str] = set()
        self._first: set[str] = set()
        """Uids of pods that were there at kubelet's start and whose turn is not over."""
        self._is_told_all = False
        self._holdings = asyncio.Lock()
        """Who has it decides what pods hold: an admission, which begins with what the books say and writes as it goes,
        or the reconcile loop. Who does not wait for it leaves all as it is while another has it."""
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}
        self._processes: dict[str, Component] = {}
        """By uid of a pod: what really runs in it."""

    # --- handlers of the informer

    def added(self, pod: Raw) -> None:
        """A pod was bound to this node, or is there at kubelet's start."""
        self._seen[uid_of(pod)] = pod
        if not self._is_told_all:
            self._first.add(uid_of(pod))
        self._waiting.put_nowait(uid_of(pod))

    def all_reported(self) -> None:
        """Every pod that existed at kubelet's start was reported."""
        self._is_told_all = True

    def updated(self, _old: Raw, pod: Raw) -> None:
        """Deletion and containers to debug with concern kubelet: nothing else of a pod's spec changes."""
        uid = uid_of(pod)
        self._seen[uid] = pod
        if uid in self._known:
            self._known[uid] = pod
            if is_deleted(pod):
                self._end(pod)
            elif self._runs(pod):
                self._start_ephemeral_containers(pod)

    def deleted(self, pod: Raw) -> None:
        """The pod is gone from the API."""
        uid = uid_of(pod)
        self._seen.pop(uid, None)
        self._known.pop(uid, None)
        self._rejected.discard(uid)
        self._first.discard(uid)
        if (life := self._lives.pop(uid, None)) is not None:
            life.cancel()
        if (process := self._processes.pop(uid, None)) is not None:
            self._spawn(process.stop(), f"end of {process.name}")
        self._on_end(uid)
        self._runtime.remove(uid)

    # --- what others ask

    async def keep_freeing_cpus(self) -> None:
        """The CPU manager's reconcile loop: every ten seconds it takes the CPUs of pods that are over."""
        await self._client.failures.keep_going("CPU manager", self._free_cpus, self._clock)

    async def _free_cpus(self) -> None:
        while True:
            await self._clock.sleep(_RECONCILE_S)
            async with self._holdings:
                active, state = self._active_uids(), self._books.state
                if active is not None and state.cpus is not None:
                    alive = self._books.alive(ResourceManager.CPU, active)
                    self._books.commit(replace(state, cpus=cpumanager.free_all_but(state.cpus, alive)))

    def _active_uids(self) -> set[str] | None:
        """The uids of pods that may hold something. None before every pod of the first list had its turn: kubelet would
        take the devices of running pods that it has not got to yet (``sourcesReady`` in the real one)."""
        if not self._is_told_all or self._first:
            return None
        return {uid for uid, pod in self._known.items() if not self._has_ended(uid, pod)}

    def listed(self) -> Iterator[KnownPod]:
        """The pods of PodResources: since 1.34 only active ones, before that also those that failed or ended.

        kubelet takes the devices of pods that are over whenever it needs to know, not when they end."""
        active = self._active_uids()
        holders = None if active is None else self._books.alive(ResourceManager.DEVICE, active)
        if holders is not None:
            self._free_devices(holders)
        for uid, pod in self._known.items():
            if self._settings.behaviour.lists_active_pods_only and self._has_ended(uid, pod):
                continue
            metadata = pod["metadata"]
            holds_devices = holders is None or uid in holders
            containers = self._listed_containers(pod)
            yield KnownPod(uid, metadata["namespace"], metadata["name"], containers, holds_devices)

    def _free_devices(self, holders: frozenset[str]) -> None:
        """Not in the midst of an admission, whose next step would undo it: until its end the devices are hidden."""
        state = self._books.state
        devices = devicemanager.free_all_but(state.devices, holders)
        if devices is not state.devices and not self._holdings.locked():
            self._books.commit(replace(state, devices=devices))

    def _others(self, uid: str) -> list[Raw]:
        return [pod for other, pod in self._known.items() if other != uid and not self._has_ended(other, pod)]

    def _has_ended(self, uid: str, pod: Raw) -> bool:
        return uid in self._rejected or is_finished(pod)

    def _listed_containers(self, pod: Raw) -> tuple[str, ...]:
        apps = {spec["name"] for spec in pod["spec"].get("containers") or ()}
        with_sidecars = self._settings.behaviour.lists_sidecars
        return tuple(
            view.name for view in containers_of(pod) if view.name in apps or (with_sidecars and not view.is_init)
        )

    # --- the work

    async def run(self) -> None:
        """Admit pods one after another, until cancelled; then let go of every pod without touching it."""
        try:
            while True:
                pod = self._seen.get(uid := await self._waiting.get())
                if pod is not None:
                    with self._client.failures.guard(_RAW_PODS, pod):
                        await self._take(pod)
                # Only now: kubelet's sources are ready when it has dealt with the whole of their first list.
                self._first.discard(uid)
        finally:
            tasks = [*self._lives.values(), *self._ends.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, pod: Raw) -> None:
        uid = uid_of(pod)
        self._known[uid] = pod
        if is_deleted(pod):
            self._end(pod)
            return
        if is_finished(pod):
            return
        try:
            running = {view.name for view in containers_of(pod) if not view.is_init and self._record_of(pod, view)}
            async with self._holdings:
                await admit(self._books, self._endpoints, pod, self._active_uids(), running)
            check_room(pod, self._others(uid), capacity_and_allocatable(self._settings)[1])
        except AdmissionError as error:
            await self._reject(pod, error)
            return
        now = self._seen.get(uid)
        if now is not None and is_deleted(now):
            self._end(now)
        elif now is not None:
            self._lives[uid] = self._spawn(self._run_pod(now), f"pod {pod['metadata']['name']}")

    async def _reject(self, pod: Raw, error: AdmissionError) -> None:
        self._rejected.add(uid_of(pod))
        self._on_rejection(error.reason)
        self._recorder.event(ref_of(_RAW_PODS, dict(pod)), error.reason, error.message, type="Warning")
        prefix = "Pod was rejected: " if self._settings.behaviour.was_rejected_prefix else "Pod "
        await self._write_status(pod, rejected_status(error.reason, prefix + error.message, self._now()))

    def _runs(self, pod: Raw) -> bool:
        is_over = self._has_ended(uid_of(pod), pod) or uid_of(pod) in self._ends
        return not is_over and (pod.get("status") or {}).get("phase") == "Running" and self._is_running(pod)

    def _is_running(self, pod: Raw) -> bool:
        return all(self._record_of(pod, view) is not None for view in containers_of(pod))

    def _record_of(self, pod: Raw, view: ContainerView) -> ContainerRecord | None:
        return self._runtime.get(uid_of(pod), view.name)

    async def _run_pod(self, pod: Raw) -> None:
        """Start the containers, report them, and end or restart them when their time is over."""
        was_running = self._is_running(pod)
        for view in containers_of(pod):
            if self._record_of(pod, view) is None:
                await self._start(pod, view, restarts=0)
        if (process := self._process_of(pod)) is not None:
            process.start()
            self._processes[uid_of(pod)] = process
        if not was_running or (pod.get("status") or {}).get("phase") != "Running":
            await self._write_status(pod, running_status(pod, self._now(), self._settings.ip))
        self._start_ephemeral_containers(self._known.get(uid_of(pod), pod))
        seconds = run_seconds(pod)
        if seconds is None:
            return
        while True:
            started_at, restarts = self._last_start(pod)
            await self._clock.sleep(max(0.0, started_at + seconds - self._clock.now().timestamp()))
            self._on_end(uid_of(pod))
            if pod["spec"].get("restartPolicy", "Always") != "Always":
                await self._write_status(pod, self._ended(pod, 0))
                return
            for view in containers_of(pod):
                if not view.is_init:
                    await self._start(pod, view, restarts + 1)
            await self._write_status(pod, running_status(pod, self._now(), self._settings.ip, restarts + 1))

    def _start_ephemeral_containers(self, pod: Raw) -> None:
        """Start the ephemeral containers that have come since, beside those of a pod that runs."""
        new = [view for view in ephemeral_containers_of(pod) if self._record_of(pod, view) is None]
        for view in new:
            self._runtime.start(self._record(pod, view, RunOptions([], with_cdi=False), restarts=0))
        if new:
            self._spawn(self._write_status(pod, ephemeral_status(pod, self._ephemeral_start_times(pod))), "debugging")

    def _ephemeral_start_times(self, pod: Raw) -> dict[str, str]:
        records = {view.name: self._record_of(pod, view) for view in ephemeral_containers_of(pod)}
        times = {name: datetime.fromtimestamp(found.started_at, UTC) for name, found in records.items() if found}
        return {name: timestamp(time) for name, time in times.items()}

    def _ended(self, pod: Raw, exit_code: int) -> dict[str, Any]:
        last = self._known.get(uid_of(pod), pod)
        ephemeral = ephemeral_status(last, self._ephemeral_start_times(last), self._now())
        return {**ended_status(pod, exit_code, self._now()), **ephemeral}

    def _last_start(self, pod: Raw) -> tuple[float, int]:
        """When the last container started, and how often they have been restarted; kubelet itself may be a new one."""
        records = [self._record_of(pod, view) for view in containers_of(pod)]
        return max((record.started_at, record.restarts) for record in records if record is not None)

    async def _start(self, pod: Raw, view: ContainerView, restarts: int) -> None:
        """Create one container, again and again with back-off while a plugin refuses it."""
        attempt = 0
        while True:
            try:
                if lacks_devices(self._books, uid_of(pod), view):
                    async with self._holdings:
                        await allocate_at_creation(self._books, self._endpoints, pod, view.name, self._active_uids())
                options = await run_options(self._books, self._endpoints, uid_of(pod), view)
                break
            except PluginError as error:
                self._recorder.event(ref_of(_RAW_PODS, dict(pod)), "Failed", f"Error: {error}", type="Warning")
                status = waiting_status(pod, view.name, "CreateContainerConfigError", str(error), self._now())
                await self._write_status(pod, status)
                await self._clock.sleep(_CREATE_BACKOFF_S[min(attempt, len(_CREATE_BACKOFF_S) - 1)])
                attempt += 1
        self._runtime.start(self._record(pod, view, options, restarts))

    def _record(self, pod: Raw, view: ContainerView, options: RunOptions, restarts: int) -> ContainerRecord:
        metadata = pod["metadata"]
        # kubelet passes the plugins' variables first: where the pod sets one too, the runtime keeps the pod's.
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": metadata["name"]}
        env |= options.env | pod_environment(pod, view.spec, self._settings.name)
        return ContainerRecord(
            pod_uid=uid_of(pod),
            namespace=metadata["namespace"],
            pod=metadata["name"],
            container=view.name,
            env=env,
            started_at=self._clock.now().timestamp(),
            restarts=restarts,
            qos=(pod.get("status") or {}).get("qosClass") or QosClass.BEST_EFFORT,
            devices=options.devices,
            mounts=options.mounts,
            annotations=options.annotations,
            cdi_devices=options.cdi_devices,
            cpuset=format_cpuset(self._books.cpus_of((uid_of(pod), view.name))),
            memory_nodes=format_cpuset(self._books.memory_nodes_of((uid_of(pod), view.name))),
        )

    def _end(self, pod: Raw) -> None:
        uid = uid_of(pod)
        if uid not in self._ends:
            self._ends[uid] = self._spawn(self._terminate(pod), f"end of pod {pod['metadata']['name']}")
            self._ends[uid].add_done_callback(lambda _: self._ends.pop(uid, None))

    async def _terminate(self, pod: Raw) -> None:
        if (life := self._lives.pop(uid_of(pod), None)) is not None:
            life.cancel()
        if (process := self._process_of(pod)) is not None:
            await process.stop()
            self._processes.pop(uid_of(pod), None)
        self._on_end(uid_of(pod))
        if not is_finished(pod):
            self._report_killing(pod)
            await self._write_status(pod, self._ended(pod, _SIGTERM_EXIT_CODE))
        metadata = pod["metadata"]
        await self._retry_until_accepted(
            lambda: self._client.delete(
                PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace_period_seconds=0
            )
        )

    def _report_killing(self, pod: Raw) -> None:
        for view in containers_of(pod):
            if self._record_of(pod, view) is not None:
                self._recorder.event(ref_of(_RAW_PODS, dict(pod)), "Killing", f"Stopping container {view.name}")

    async def _write_status(self, pod: Raw, status: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._retry_until_accepted(
            lambda: self._client.patch_merge(
                PODS, metadata["name"], patch, metadata["namespace"], subresource="status", strategic=True
            )
        )

    async def _retry_until_accepted(self, call: Any) -> None:
        """Retry until the API server accepts the call, or the pod is gone or has been replaced."""

        async def attempt() -> None:
            with contextlib.suppress(NotFoundError, ConflictError):
                await call()

        await retry_until_accepted(attempt, f"Node {self._settings.name}: failed to update a pod", self._clock)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_failure)
        return task

    def _now(self) -> str:
        return timestamp(self._clock.now())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("A pod worker failed", task=task.get_name(), exc_info=error)
