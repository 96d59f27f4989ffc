"""The cluster by watches, with a kubeconfig: for a cluster that others schedule as well.

What was read is made into a state document and judged in a thread: keys are answered meanwhile. Less than half of a
core's time goes into it, so large clusters are looked at less often.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog

from purser.adapters.object_details import read_events
from purser.adapters.objects import DEVICE_CLAIM_KINDS, OPTIONAL_KINDS, READ_KINDS, ClusterObjects, objects_by_kind
from purser.adapters.pod_steps import steps_of
from purser.adapters.rollouts import make_rollout, read_policies
from purser.core.state import ClusterState, NodeDetails, Rollout, StateEvent, StateStep, StateWaiting
from purser.kube import Client, Clock, Informer
from purser.kube.errors import ForbiddenError, KubeError, NotFoundError, first_error
from purser.kube.pod_details import SCHEDULED_PODS
from purser.kube.resources import NODES, Resource
from purser.kube.sharing import SharedAnswer
from purser.recent import Recent
from purser.scheduler.explaining import Explanation, Overview, UnknownPodError
from purser.top.source import ADDITIONS_FRESH_S

T = TypeVar("T")

log = structlog.get_logger("purser.top")

LEAST_PAUSE_S = 1.0
"""Between two looks at a cluster that changes."""
PAUSE_FACTOR = 1.5
"""So many times as long as it took nothing is done."""
_COMPUTE_SLICE_S = 0.2
"""Of finding reasons, between two looks at who is waiting for an answer."""
_FIRST_SYNC_TIMEOUT_S = 0.05
_MAX_EVENT_LISTS = 64

_Events = Sequence[StateEvent] | None


_PROBLEM_PERIOD_S = 1.0
"""Between two looks whether the informers have an error."""


class FollowedCluster:
    """A `StateSource`."""

    def __init__(self, client: Client, clock: Clock, describe: Callable[[Explanation], list[str]]) -> None:
        """``describe``: an explanation as lines."""
        self.where = client.config.server
        self.state: ClusterState | None = None
        self._client, self._clock, self._describe = client, clock, describe
        self._informers: dict[str, Informer[Any]] = {}
        self._notes: list[str] = []
        self._missing_claim_kinds = list(DEVICE_CLAIM_KINDS)
        self._changed = asyncio.Event()
        self._overview: Overview | None = None
        self._reasons: dict[str, StateWaiting] = {}
        self._wanted: tuple[str, ...] = ()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="overview")
        self._sequence = 0
        self._events: Recent[tuple[object, ...], SharedAnswer[_Events]] = Recent(_MAX_EVENT_LISTS)

    @property
    def problem(self) -> str:
        """Why the state is not up to date; empty: it is."""
        errors = (informer.error for informer in self._informers.values())
        return next((f"not up to date: {error}" for error in errors if error is not None), "")

    def wants(self, uids: Sequence[str]) -> None:
        """These waiting pods are looked at: their reasons go first."""
        self._wanted = tuple(uids)

    async def run(self, on_change: Callable[[], None]) -> None:
        """Follow until cancelled. Raises `KubeError` where nodes or pods cannot be read."""
        try:
            async with asyncio.TaskGroup() as group:
                for resource in READ_KINDS:
                    await self._start(group, resource)
                group.create_task(self._report_problems(on_change))
                while True:
                    await self._start_claims(group)
                    took_s = await self._look(on_change)
                    await self._clock.sleep(max(LEAST_PAUSE_S, PAUSE_FACTOR * took_s))
                    await self._changed.wait()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    async def details(self, namespace: str, pod: str) -> list[str]:
        """Why a pod waits, or is where it is, as `purser why` says it."""
        overview = self._overview
        if overview is None:
            return []
        try:
            return self._describe(await self._run_in_worker(lambda: overview.explain(namespace, pod)))
        except UnknownPodError as error:
            return [str(error)]

    async def rollout(self) -> Rollout:
        """ClusterPolicies as they are now, and the nodes as they were last seen."""
        statuses, problems = await read_policies(self._client)
        nodes = tuple(self._informers[NODES.kind].store.values()) if NODES.kind in self._informers else ()
        return await asyncio.to_thread(make_rollout, statuses, nodes, problems)

    async def steps(self, namespace: str, pod: str, uid: str) -> Sequence[StateStep]:
        """Of the pod's status."""
        informer = self._informers.get(SCHEDULED_PODS.kind)
        found = None if informer is None else informer.store.get(f"{namespace}/{pod}")
        return [] if found is None or found.metadata.uid != uid else steps_of(found)

    async def events(self, namespace: str, about: Mapping[str, str]) -> Sequence[StateEvent] | None:
        """Read once for all who look at the object: the API server goes through all events of the namespace for it."""
        key = (namespace, *about.items())
        known = self._events.get(key)
        if known is None or known.is_old:
            known = self._events.put(
                key, SharedAnswer(self._read_events(namespace, about), self._clock, ADDITIONS_FRESH_S)
            )
        return await known.answer()

    async def _read_events(self, namespace: str, about: Mapping[str, str]) -> Sequence[StateEvent] | None:
        try:
            return (await read_events(self._client, namespace, about)).events
        except ForbiddenError:
            return None

    async def node_details(self, name: str) -> NodeDetails | None:
        """Of the node's annotations."""
        overview = self._overview
        return None if overview is None else await self._run_in_worker(lambda: overview.node_details(name))

    async def _start(self, group: asyncio.TaskGroup, resource: Resource[Any]) -> None:
        informer = Informer(self._client, resource, clock=self._clock)
        informer.add_handler(self._note, lambda _, new: self._note(new), self._note)
        running, synced = group.create_task(informer.run()), asyncio.ensure_future(informer.synced())
        try:
            while not synced.done():
                await asyncio.wait({synced}, timeout=_FIRST_SYNC_TIMEOUT_S)
                if informer.error is None or synced.done():
                    continue
                running.cancel()
                if isinstance(informer.error, ForbiddenError) and resource in (*OPTIONAL_KINDS, *DEVICE_CLAIM_KINDS):
                    self._notes.append(f"{resource.plural} are not shown, because you are not allowed to read them")
                elif not (isinstance(informer.error, NotFoundError) and resource in DEVICE_CLAIM_KINDS):
                    raise informer.error
                return
        finally:
            synced.cancel()
        self._informers[resource.kind] = informer

    async def _start_claims(self, group: asyncio.TaskGroup) -> None:
        """Follow ResourceClaims once a pod names one: most clusters have none, and old ones no such kind."""
        pods = self._informers[SCHEDULED_PODS.kind].store.values()
        if not self._missing_claim_kinds or not any(pod.spec.resource_claims for pod in pods):
            return
        try:
            for resource in tuple(self._missing_claim_kinds):
                await self._start(group, resource)
                self._missing_claim_kinds.remove(resource)
        except KubeError as error:
            log.warning("Cannot read the cluster's ResourceClaims yet", error=str(error))

    def _note(self, _: object) -> None:
        self._changed.set()

    async def _report_problems(self, on_change: Callable[[], None]) -> None:
        """An API server that is away changes no object, and its return may change none either."""
        reported = ""
        while True:
            await self._clock.sleep(_PROBLEM_PERIOD_S)
            if self.problem != reported:
                reported = self.problem
                on_change()

    async def _look(self, on_change: Callable[[], None]) -> float:
        """Make the document of what there is now, and find reasons until there is something new to look at; how many
        seconds that took."""
        self._changed.clear()
        self._sequence += 1
        objects, began = self._objects(), self._clock.monotonic()
        overview, state = await self._run_in_worker(lambda: _overview_and_state(objects, self._sequence))
        compute_s = self._clock.monotonic() - began
        self._overview = overview
        # Until a pod is judged again its last reason is shown: else all of them would come and go.
        self._reasons = {each.uid: old for each in state.waiting if (old := self._reasons.get(each.uid))}
        self._show(state, on_change)
        left = {each.uid: None for each in state.waiting}
        while left and not (self._changed.is_set() and self._clock.monotonic() - began > 2 * compute_s + LEAST_PAUSE_S):
            order = [*(uid for uid in self._wanted if uid in left), *left]
            found = await self._run_in_worker(partial(overview.judged, order, for_s=_COMPUTE_SLICE_S))
            if not found:
                break
            for uid in found:
                left.pop(uid, None)
            self._reasons |= found
            self._show(state, on_change)
        return self._clock.monotonic() - began

    def _show(self, state: ClusterState, on_change: Callable[[], None]) -> None:
        waiting = tuple(_with_reason(each, self._reasons.get(each.uid)) for each in state.waiting)
        self.state = msgspec.structs.replace(state, waiting=waiting)
        on_change()

    def _objects(self) -> ClusterObjects:
        found = {kind: tuple(informer.store.values()) for kind, informer in self._informers.items()}
        return objects_by_kind(found, self._notes)

    async def _run_in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)


def _overview_and_state(objects: ClusterObjects, sequence: int) -> tuple[Overview, ClusterState]:
    overview = Overview(objects)
    return overview, overview.state(sequence)


def _with_reason(pod: StateWaiting, known: StateWaiting | None) -> StateWaiting:
    if known is None:
        return pod
    return msgspec.structs.replace(
        pod, reason=known.reason, message=known.message, reasons=known.reasons, suggestion=known.suggestion
    )
