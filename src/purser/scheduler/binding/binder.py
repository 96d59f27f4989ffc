"""Binding a pod: decide once more, reserve, post, and never guess what became of a write.

The grant travels on the Binding itself, so that node and grant appear on the pod in one atomic write. What happened to
a Binding whose answer was lost is asked of the API server (`unsettled`).
"""

import asyncio

import structlog

from purser.adapters.eligibility import names_devices, other_scheduler, why_not_schedulable
from purser.adapters.pods import ref_of_grant
from purser.core.dialects import DialectError, grant_annotations, hami
from purser.core.fleet import NodeState
from purser.core.grant.signing import GrantError, sign
from purser.core.mig.several import granted_note
from purser.core.model import Enforcement, Grant, GrantState, PodRequest
from purser.core.placement.asked import asked_annotation
from purser.core.sriov.pairs import pairs_of, pairs_sentence, switches_of
from purser.core.vendors.catalogue import BY_RESOURCE
from purser.core.vendors.family import NodeLock
from purser.core.vendors.hami_nodes import PLUGIN_LOCK
from purser.kube import (
    ApiUnavailableError,
    Client,
    ConflictError,
    EventRecorder,
    KubeError,
    NotFoundError,
    ServerError,
    ref_of,
)
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resources import NODES, PODS
from purser.scheduler.binding.node_locks import NodeLockedError, NodeLocks
from purser.scheduler.binding.unsettled import BindOutcome, UnsettledBindings
from purser.scheduler.cache import ClusterCache
from purser.scheduler.extender_api import ExtenderBindingArgs
from purser.scheduler.keys import GrantKeys
from purser.scheduler.leadership_gate import LeadershipGate, NotLeadingError
from purser.scheduler.placement import ReservationError, Reservations
from purser.scheduler.reasons import BindFailure, SchedulerReason

RESOLVE_PERIOD_S = 2.0

log = structlog.get_logger("purser.scheduler")


class BindError(Exception):
    """The pod was not bound; the message is for kube-scheduler's event."""

    def __init__(self, reason: BindFailure, message: str):
        super().__init__(message)
        self.reason = reason


class Binder:
    """Binds pods, one attempt per pod at a time."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        reservations: Reservations,
        gate: LeadershipGate,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._cache = cache
        self._keys = keys
        self._reservations = reservations
        self._events = events
        self._gate = gate
        self._attempts: dict[str, asyncio.Task[None]] = {}
        self._unsettled = UnsettledBindings(client, cache, reservations)
        self._locks = NodeLocks(client, cache)

    async def bind(self, args: ExtenderBindingArgs) -> None:
        """Bind the pod to the node. Raises `BindError`; done again for a pod that is bound so, it changes nothing.

        An attempt outlives a caller that gives up: it is never cut between reservation and answer.
        """
        while (running := self._attempts.get(args.pod_uid)) is not None:
            await asyncio.wait({running})
        attempt = asyncio.create_task(self._bind(args))
        self._attempts[args.pod_uid] = attempt
        attempt.add_done_callback(lambda done: self._forget(args.pod_uid, done))
        await asyncio.shield(attempt)

    async def resolve(self) -> None:
        """Ask about every reservation whose outcome is unknown, once."""
        for grant in self._unsettled.grants():
            uid = grant.pod_uid
            if uid not in self._attempts and uid in self._unsettled:
                with self._client.failures.guard(PODS, ref_of_grant(grant)):
                    await self._unsettled.resolve(uid)

    async def drain(self) -> None:
        """Return once no attempt is under way."""
        if self._attempts:
            await asyncio.wait(self._attempts.values())

    def _forget(self, uid: str, attempt: asyncio.Task[None]) -> None:
        del self._attempts[uid]
        if not attempt.cancelled() and attempt.exception() is not None:
            log.info("Failed to bind a pod", uid=uid, error=str(attempt.exception()))

    async def _bind(self, args: ExtenderBindingArgs) -> None:
        await self._wait_for_leadership()
        pod = await self.pod(args.pod_namespace, args.pod_name, args.pod_uid)
        if pod.spec.node_name:
            return self._check_bound(pod, args)
        self._check_pod(pod)
        await self._check_node(pod, args.node)
        request = self._request(pod)
        if request is None:
            return await self._post(args, {}, None)
        earlier = await self._earlier_grant(args)
        await self._wait_for_leadership()  # it may have closed while the API server was asked
        grant, why = (earlier, "") if earlier else self._reserve(args, request)
        if self._cache.ledger.state(args.pod_uid) is not GrantState.RESERVED:
            return None  # the earlier attempt had succeeded
        await self._post_under_lock(args, pod, request, grant)
        message = granted_sentence(self._cache, grant, why)
        asked = asked_annotation(request, grant)
        self._events.event(ref_of(PODS, pod), SchedulerReason.GRANTED, message, annotations=asked)
        return None

    async def _wait_for_leadership(self) -> None:
        try:
            await self._gate.wait_until_open()
        except NotLeadingError as error:
            raise BindError(BindFailure.NOT_LEADING, str(error)) from error

    async def pod(self, namespace: str, name: str, uid: str) -> Pod:
        """The pod that is meant, as last heard of, or asked for where nothing was. Raises `BindError` without one."""
        pod = self._cache.pod(namespace, name)
        if pod is None or pod.metadata.uid != uid:
            pod = await self._get(namespace, name)
        if pod is None or pod.metadata.uid != uid:
            raise BindError(BindFailure.POD_DELETED, f"pod {namespace}/{name} ({uid}) is gone")
        if is_terminal(pod) or pod.metadata.deletion_timestamp:
            raise BindError(BindFailure.POD_DELETED, f"pod {namespace}/{name} has finished or is being deleted")
        return pod

    def _check_pod(self, pod: Pod) -> None:
        """Checks of every pod that is placed; the client may not have called ``filter`` before."""
        if message := other_scheduler(pod, self._cache.scheduler_name):
            raise BindError(BindFailure.NOT_FOR_PURSER, message)
        reading = self._cache.readings.of(pod)
        if not (reading.asks_for_devices or names_devices(reading.spec)):
            raise BindError(
                BindFailure.NOT_FOR_PURSER,
                "the pod does not request GPUs, so Purser does not bind it: check the extender's managedResources in "
                "kube-scheduler's configuration",
            )
        if message := reading.objection:
            raise BindError(BindFailure.POD_NOT_ALLOWED, message)

    async def _check_node(self, pod: Pod, name: str) -> None:
        """Where the node seems closed to the pod it is asked for: kube-scheduler may have heard of a change first."""
        known = self._cache.node(name)
        if known is None or not why_not_schedulable(pod, known):
            return
        try:
            known = await self._client.get(NODES, name)
        except KubeError as error:
            raise BindError(BindFailure.API_ERROR, f"node {name} cannot be read: {error}") from error
        if why := why_not_schedulable(pod, known):
            raise BindError(BindFailure.NODE_CLOSED, f"node {name} {why}")

    async def _get(self, namespace: str, name: str) -> Pod | None:
        try:
            return await self._client.get(PODS, name, namespace)
        except NotFoundError:
            return None
        except KubeError as error:
            raise BindError(BindFailure.API_ERROR, f"pod {namespace}/{name} cannot be read: {error}") from error

    def _check_bound(self, pod: Pod, args: ExtenderBindingArgs) -> None:
        """A retry of what succeeded is a success; anything else is not ours to change."""
        if pod.spec.node_name != args.node:
            raise BindError(BindFailure.ALREADY_BOUND, f"the pod is already bound to node {pod.spec.node_name}")
        try:
            granted = self._cache.bound_grants.trusted_grant(pod) is not None
        except GrantError as error:
            raise BindError(
                BindFailure.BOUND_WITH_INVALID_GRANT, f"the pod is bound with an invalid grant: {error}"
            ) from error
        if not granted and self._request(pod) is not None:
            raise BindError(BindFailure.BOUND_WITHOUT_GRANT, "another component bound the pod without a grant")

    def _request(self, pod: Pod) -> PodRequest | None:
        try:
            return self._cache.readings.of(pod).request()
        except DialectError as error:
            raise BindError(BindFailure.POD_NOT_ALLOWED, str(error)) from error

    async def _earlier_grant(self, args: ExtenderBindingArgs) -> Grant | None:
        """The grant of an attempt whose outcome is, or was until now, unknown.

        The same grant may be posted again: whichever write is carried out, the pod holds what is in the ledger.
        """
        if args.pod_uid in self._unsettled:
            await self._unsettled.resolve(args.pod_uid)
        grant = None if self._reservations.is_early(args.pod_uid) else self._cache.ledger.grant(args.pod_uid)
        if grant is not None and grant.node != args.node:
            raise BindError(
                BindFailure.OUTCOME_UNKNOWN,
                f"Purser does not know yet whether the pod was bound to node {grant.node}",
            )
        return grant

    def _reserve(self, args: ExtenderBindingArgs, request: PodRequest) -> tuple[Grant, str]:
        try:
            return self._reservations.reserve(args.node, request)
        except ReservationError as error:
            raise BindError(error.reason, str(error)) from error

    async def _post_under_lock(self, args: ExtenderBindingArgs, pod: Pod, request: PodRequest, grant: Grant) -> None:
        """Post the grant, behind the lock that HAMi's device plugin, or that of another vendor's family, expects on the
        node."""
        lock = self._lock(args.node, request)
        if lock is None:
            return await self._post_grant(args, pod, request, grant)
        try:
            await self._take_lock(args.node, lock, pod)
            await self._wait_for_leadership()  # it may have closed meanwhile, as before
            if self._cache.ledger.grant(grant.pod_uid) != grant:
                raise BindError(BindFailure.NOT_LEADING, "the pod's grant was withdrawn while its node was locked")
        except BaseException:
            self._unsettled.mark_failed(grant)
            raise
        try:
            await self._post_grant(args, pod, request, grant)
        except BindError:
            if self._gate.is_open and grant.pod_uid not in self._unsettled:  # else another replica may go on
                await self._locks.give_back(args.node, lock, pod)
            raise

    async def _take_lock(self, node: str, lock: NodeLock, pod: Pod) -> None:
        try:
            await self._locks.take(node, lock, pod)
        except NodeLockedError as error:
            raise BindError(BindFailure.NODE_LOCKED, str(error)) from error

    def _lock(self, node: str, request: PodRequest) -> NodeLock | None:
        if not request.family:
            return PLUGIN_LOCK if self._cache.is_served_by_hami(node) else None
        family = BY_RESOURCE.get(request.family)
        return None if family is None else family.lock

    async def _post_grant(self, args: ExtenderBindingArgs, pod: Pod, request: PodRequest, grant: Grant) -> None:
        node, spec = self._cache.fleet.node(args.node), self._cache.readings.of(pod).spec
        there = set() if node is None else {state.device.uuid for state in node.devices}
        if node is None or (request.family and not grant.uuids <= there):
            self._unsettled.mark_failed(grant)
            raise BindError(
                BindFailure.NO_INVENTORY, f"node {args.node} no longer has the devices that were chosen for the pod"
            )
        at_ns = round(self._cache.clock.now().timestamp() * 1e6) * 1000
        compat = grant_annotations(spec, request.systems, grant, node.inventory, at_ns)
        if not request.family and self._cache.is_hami_node(args.node):
            is_served_by_plugin = self._cache.is_served_by_hami(args.node)
            compat |= hami.hami_node_annotations(spec, grant, at_ns, is_served_by_plugin=is_served_by_plugin)
        try:
            await self._post(args, {**compat, **sign(grant, self._keys.signing)}, grant)
        except asyncio.CancelledError:
            self._unsettled.mark_unsettled(grant)
            raise
        self._unsettled.confirm(grant)

    async def _post(self, args: ExtenderBindingArgs, annotations: dict[str, str], grant: Grant | None) -> None:
        """Post the Binding; returns only where the pod is bound with this grant."""
        try:
            await self._client.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node, annotations)
        except KubeError as error:
            if grant is None:
                raise BindError(BindFailure.API_ERROR, f"the Binding failed: {error}") from error
            if _has_unknown_outcome(error):
                self._unsettled.mark_unsettled(grant)
            if not (_has_unknown_outcome(error) or isinstance(error, ConflictError)):
                self._unsettled.mark_failed(grant)
                raise BindError(BindFailure.API_ERROR, f"the Binding was rejected: {error}") from error
            await self._settle(grant, error)

    async def _settle(self, grant: Grant, error: KubeError) -> None:
        """Returns only where the pod is bound with this grant, whatever the answer was."""
        outcome = await self._unsettled.settle(grant)
        if outcome is BindOutcome.BOUND_BY_US:
            return
        if grant.pod_uid in self._unsettled:
            raise BindError(
                BindFailure.OUTCOME_UNKNOWN, f"Purser does not know yet whether the pod was bound: {error}"
            ) from error
        found = "the pod cannot be read to check whether it is bound" if outcome is None else outcome.value
        raise BindError(BindFailure.API_ERROR, f"the Binding failed, and {found}: {error}") from error


def _has_unknown_outcome(error: KubeError) -> bool:
    """Whether the write may be, or may yet be, carried out although it seems to have failed."""
    return isinstance(error, ServerError) or (isinstance(error, ApiUnavailableError) and error.outcome_unknown)


def granted_sentence(cache: ClusterCache, grant: Grant, why: str = "") -> str:
    """Such as ``Granted GPU 3 of node node-1: lowers fragmentation by 0.20 GPUs; enforcement: hami-core``."""
    held = grant.uuids
    node = cache.fleet.node(grant.node)
    devices = [state.device for state in node.devices if state.device.uuid in held] if node else []
    gpus = [str(device.index) for device in devices] if node else sorted(held)
    what = "device" if any(device.resource in BY_RESOURCE for device in devices) else "GPU"
    message = f"Granted {what}{'s' if len(gpus) > 1 else ''} {', '.join(gpus)} on node {grant.node}"
    reason = f": {why}" if why else ""
    return f"{message}{reason}{_alignment_note(grant, node)}{_enforcement(grant)}{_mig_note(grant, node)}"


def _alignment_note(grant: Grant, node: NodeState | None) -> str:
    """How GPUs and network devices are aligned, where the pod has both."""
    if node is None or not grant.pools:
        return ""
    found = pairs_of(grant, switches_of(node.inventory.devices), node.inventory.pools)
    return f"; {pairs_sentence(found)}" if found else ""


def _mig_note(grant: Grant, node: NodeState | None) -> str:
    """What CUDA shows of several MIG devices, where that is not all."""
    mig = {d.uuid: d for d in node.inventory.devices if d.is_mig} if node is not None else {}
    if node is None or not mig:
        return ""
    note = granted_note(grant, mig, node.inventory.driver_version)
    return f"; {note}" if note else ""


def _enforcement(grant: Grant) -> str:
    """What holds each container to its share, where any has one."""
    words = {part.container: part.enforcement for part in grant.containers}
    if set(words.values()) <= {Enforcement.WHOLE_DEVICE}:
        return ""
    by_container = {name: f"{word} (advisory)" if word.is_advisory else f"{word}" for name, word in words.items()}
    if len(set(words.values())) == 1:
        return f"; enforcement: {next(iter(by_container.values()))}"
    return "; " + "; ".join(f"enforcement for container {name}: {word}" for name, word in by_container.items())
