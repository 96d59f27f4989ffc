"""Binding a pod: decide once more, reserve, post, and never guess what became of a write.

The grant travels on the Binding itself, so that node and grant appear on the pod in one atomic write. What happened to
a Binding whose answer was lost is asked of the API server; as long as it may still be carried out, the reservation
stays.
"""

import asyncio
from dataclasses import dataclass
from enum import Enum

import structlog

from purser.core.dialects import DialectError, grant_annotations, parse
from purser.core.ledger import LedgerError
from purser.core.model import Grant, GrantState, PodRequest
from purser.core.placement import Evaluator, Refusal, to_grant
from purser.core.signing import GrantError, sign
from purser.kube import (
    ApiUnavailableError,
    Client,
    Clock,
    ConflictError,
    EventRecorder,
    KubeError,
    NotFoundError,
    ServerError,
    ref_of,
)
from purser.kube.adapters import is_terminal, pod_spec
from purser.kube.objects import Pod
from purser.kube.resources import PODS
from purser.scheduler.cache import ClusterCache
from purser.scheduler.extender_api import ExtenderBindingArgs
from purser.scheduler.extender_fence import Fence, FencedError
from purser.scheduler.keys import GrantKeys

SETTLE_S = 65.0
"""For how long a Binding whose answer was lost may still be carried out: its request timeout is 60 s."""

RESOLVE_EVERY_S = 2.0

EVENT_REASON = "Granted"

log = structlog.get_logger("purser.scheduler")


class BindError(Exception):
    """The pod was not bound; ``cause`` is one word for metrics."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


class Truth(Enum):
    """What the API server says of a pod that we tried to bind."""

    OURS = "bound with our grant"
    UNBOUND = "not bound"
    OTHERWISE = "bound otherwise"
    GONE = "gone"


@dataclass(slots=True)
class _Unsettled:
    """A grant whose Binding may or may not have been carried out, or whose pod no informer knows yet."""

    grant: Grant
    until: float
    """Monotonic seconds; after that an unbound pod stays unbound."""


class Binder:
    """Binds pods, one attempt per pod at a time."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        evaluator: Evaluator,
        fence: Fence,
        clock: Clock,
        events: EventRecorder,
    ):
        self._client = client
        self._cache = cache
        self._keys = keys
        self._evaluator = evaluator
        self._events = events
        self._fence = fence
        self._clock = clock
        self._attempts: dict[str, asyncio.Task[None]] = {}
        self._unsettled: dict[str, _Unsettled] = {}

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
        for uid in list(self._unsettled):
            if uid not in self._attempts:
                await self._resolve(uid)

    async def drain(self) -> None:
        """Return once no attempt is under way."""
        if self._attempts:
            await asyncio.wait(self._attempts.values())

    def _forget(self, uid: str, attempt: asyncio.Task[None]) -> None:
        del self._attempts[uid]
        if not attempt.cancelled() and attempt.exception() is not None:
            log.info("A pod was not bound", uid=uid, error=str(attempt.exception()))

    async def _bind(self, args: ExtenderBindingArgs) -> None:
        await self._pass_fence()
        pod = await self._pod(args)
        if pod.spec.node_name:
            return self._check_bound(pod, args)
        request = _request(pod)
        if request is None:
            return await self._post(args, {}, None)
        earlier = await self._earlier(args)
        await self._pass_fence()  # it may have closed while the API server was asked
        grant, why = (earlier, "") if earlier else self._reserve(args, request)
        if self._cache.ledger.state(args.pod_uid) is not GrantState.RESERVED:
            return None  # the earlier attempt had succeeded
        await self._post_grant(args, pod, grant)
        self._events.event(ref_of(PODS, pod), EVENT_REASON, _sentence(self._cache, grant, why))
        return None

    async def _pass_fence(self) -> None:
        try:
            await self._fence.passed()
        except FencedError as error:
            raise BindError("fenced", str(error)) from error

    async def _pod(self, args: ExtenderBindingArgs) -> Pod:
        """The pod that is meant, as last heard of, or asked for where nothing was."""
        pod = self._cache.pod(args.pod_namespace, args.pod_name)
        if pod is None or pod.metadata.uid != args.pod_uid:
            pod = await self._get(args.pod_namespace, args.pod_name)
        if pod is None or pod.metadata.uid != args.pod_uid:
            raise BindError("gone", f"pod {args.pod_namespace}/{args.pod_name} ({args.pod_uid}) is gone")
        if is_terminal(pod) or pod.metadata.deletion_timestamp:
            raise BindError("gone", f"pod {args.pod_namespace}/{args.pod_name} has ended or is being deleted")
        return pod

    async def _get(self, namespace: str, name: str) -> Pod | None:
        try:
            return await self._client.get(PODS, name, namespace)
        except NotFoundError:
            return None
        except KubeError as error:
            raise BindError("api", f"pod {namespace}/{name} cannot be read: {error}") from error

    def _check_bound(self, pod: Pod, args: ExtenderBindingArgs) -> None:
        """A retry of what succeeded is a success; anything else is not ours to change."""
        if pod.spec.node_name != args.node:
            raise BindError("bound-otherwise", f"the pod is bound to node {pod.spec.node_name} already")
        try:
            granted = self._cache.trusted_grant(pod) is not None
        except GrantError as error:
            raise BindError("bound-otherwise", f"the pod is bound with a grant that does not count: {error}") from error
        if not granted and _request(pod) is not None:
            raise BindError("bound-otherwise", "the pod was bound without a grant by somebody else")

    async def _earlier(self, args: ExtenderBindingArgs) -> Grant | None:
        """The grant of an attempt whose outcome is, or was until now, unknown.

        The same grant may be posted again: whichever write is carried out, the pod holds what is on the book.
        """
        if args.pod_uid in self._unsettled:
            await self._resolve(args.pod_uid)
        grant = self._cache.ledger.grant(args.pod_uid)
        if grant is not None and grant.node != args.node:
            raise BindError("unsettled", f"whether the pod was bound to node {grant.node} is not known yet")
        return grant

    def _reserve(self, args: ExtenderBindingArgs, request: PodRequest) -> tuple[Grant, str]:
        """Decide on the book as it is now and enter the decision: nothing else runs in between. With the reason why."""
        node = self._cache.fleet.node(args.node)
        if node is None:
            raise BindError("no-inventory", f"node {args.node} has no inventory")
        placement = self._evaluator.place(args.node, request, self._cache.room_of(request.namespace))
        if isinstance(placement, Refusal):
            raise BindError("no-longer-fits", f"the pod does not fit node {args.node} any more: {placement.message}")
        grant, why = to_grant(placement, request, node.inventory), self._evaluator.why(request, placement)
        try:
            self._cache.ledger.reserve(grant)
        except LedgerError as error:
            raise BindError("book", str(error)) from error
        self._cache.kubelets.expect(args.node, request)
        self._cache.node_rooms.expect(args.node, request)
        return grant, why

    async def _post_grant(self, args: ExtenderBindingArgs, pod: Pod, grant: Grant) -> None:
        node = self._cache.fleet.node(args.node)
        compat = {} if node is None else grant_annotations(pod_spec(pod), grant, node.inventory)
        try:
            await self._post(args, {**compat, **sign(grant, self._keys.signing)}, grant)
        except asyncio.CancelledError:
            self._doubt(grant)
            raise
        self._confirm(grant)

    async def _post(self, args: ExtenderBindingArgs, annotations: dict[str, str], grant: Grant | None) -> None:
        """Post the Binding; returns only where the pod is bound with this grant."""
        try:
            await self._client.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node, annotations)
        except KubeError as error:
            if grant is None:
                raise BindError("api", f"the Binding failed: {error}") from error
            if _is_lost(error):
                self._doubt(grant)
            if not (_is_lost(error) or isinstance(error, ConflictError)):
                self._drop_if_settled(grant)
                raise BindError("api", f"the Binding was refused: {error}") from error
            await self._settle(grant, error)

    async def _settle(self, grant: Grant, error: KubeError) -> None:
        """The answer was lost, or says that the pod is not as expected: the pod itself tells whether it is bound."""
        truth = await self._ask(grant)
        if truth is Truth.OURS:
            return
        if truth in (Truth.GONE, Truth.OTHERWISE):
            self._drop(grant)
        elif truth is Truth.UNBOUND:
            self._drop_if_settled(grant)
        else:
            self._doubt(grant)
        if grant.pod_uid in self._unsettled:
            raise BindError("unknown", f"whether the pod was bound is not known yet: {error}") from error
        found = "not to be read" if truth is None else truth.value
        raise BindError("api", f"the pod was not bound, it is {found}: {error}") from error

    async def _ask(self, grant: Grant) -> Truth | None:
        """What became of a pod; None where the API server cannot be asked."""
        try:
            pod = await self._client.get(PODS, grant.pod, grant.namespace)
        except NotFoundError:
            return Truth.GONE
        except KubeError as error:
            log.warning("A pod cannot be asked for", pod=f"{grant.namespace}/{grant.pod}", error=str(error))
            return None
        return self._truth(pod, grant)

    def _truth(self, pod: Pod, grant: Grant) -> Truth:
        if pod.metadata.uid != grant.pod_uid or is_terminal(pod):
            return Truth.GONE
        if not pod.spec.node_name:
            return Truth.UNBOUND
        try:
            return Truth.OURS if self._cache.trusted_grant(pod) == grant else Truth.OTHERWISE
        except GrantError:
            return Truth.OTHERWISE

    async def _resolve(self, uid: str) -> None:
        doubt, state = self._unsettled[uid], self._cache.ledger.state(uid)
        if state is None or (state is not GrantState.RESERVED and self._cache.pod_by_uid(uid) is not None):
            self._unsettled.pop(uid, None)  # an informer was faster, and will tell of the pod's end as well
            return
        truth = await self._ask(doubt.grant)
        if truth is Truth.OURS:
            self._confirm(doubt.grant)
        elif truth in (Truth.GONE, Truth.OTHERWISE) or (
            truth is Truth.UNBOUND and self._clock.monotonic() >= doubt.until
        ):
            log.info("A Binding came to nothing", pod=f"{doubt.grant.namespace}/{doubt.grant.pod}", found=truth.value)
            self._drop(doubt.grant)

    def _doubt(self, grant: Grant) -> None:
        if self._cache.ledger.grant(grant.pod_uid) == grant:
            self._unsettled[grant.pod_uid] = _Unsettled(grant, self._clock.monotonic() + SETTLE_S)

    def _confirm(self, grant: Grant) -> None:
        """The pod is bound; it may even have ended meanwhile, and then nothing is on the book any more.

        Of a pod that no informer has seen yet none need ever tell that it is gone, so it is asked for until one has.
        """
        self._unsettled.pop(grant.pod_uid, None)
        if self._cache.ledger.state(grant.pod_uid) is GrantState.RESERVED:
            self._cache.ledger.advance(grant.pod_uid, GrantState.BOUND)
        if self._cache.pod_by_uid(grant.pod_uid) is None:
            self._doubt(grant)

    def _drop_if_settled(self, grant: Grant) -> None:
        """This write did not happen; another one before it may still."""
        if grant.pod_uid not in self._unsettled:
            self._drop(grant)

    def _drop(self, grant: Grant) -> None:
        """Take the reservation off the book, unless an informer has replaced it by what is really there."""
        self._unsettled.pop(grant.pod_uid, None)
        if self._cache.ledger.grant(grant.pod_uid) == grant:
            self._cache.ledger.release(grant.pod_uid)
            self._cache.kubelets.expect_no_more(grant)
            self._cache.node_rooms.expect_no_more(grant)


def _is_lost(error: KubeError) -> bool:
    """Whether the write may be, or may yet be, carried out although it seems to have failed."""
    return isinstance(error, ServerError) or (isinstance(error, ApiUnavailableError) and error.outcome_unknown)


def _sentence(cache: ClusterCache, grant: Grant, why: str) -> str:
    """Such as ``holds GPU 3 of node-1: keeps to the patterns of shares``."""
    held = {share.uuid for part in grant.containers for share in part.shares}
    node = cache.fleet.node(grant.node)
    gpus = [str(state.device.index) for state in node.devices if state.device.uuid in held] if node else sorted(held)
    said = f"holds GPU{'s' if len(gpus) > 1 else ''} {', '.join(gpus)} of node {grant.node}"
    return f"{said}: {why}" if why else said


def _request(pod: Pod) -> PodRequest | None:
    try:
        return parse(pod_spec(pod))
    except DialectError as error:
        raise BindError("request", str(error)) from error
