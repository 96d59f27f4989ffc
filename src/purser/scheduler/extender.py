"""What kube-scheduler asks: which nodes could hold a pod, which is best, bind it there, whom to preempt.

Room that is being made for a pod is kept from pods of the same and of lower priority (`nominations`).

``filter`` and ``prioritize`` write nothing and return the best of the nodes that fit, so many that kube-scheduler's own
scores keep their say; the book changes at ``bind`` only. (HAMi reserves inside its filter and returns one node.)
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from itertools import compress

import msgspec
import structlog

from purser.core.decoding import brief
from purser.core.dialects import DialectError
from purser.core.grant.disputes import DisputeReason
from purser.core.grant.quota import UNLIMITED, Demand, Room, grant_demand, request_demand, room
from purser.core.ledger import Usage
from purser.core.model import GpuPolicy, PodRequest
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import (
    PROMISED,
    Authority,
    Evaluation,
    Evaluator,
    Placement,
    PolicySettings,
    Refusal,
    best,
    explain,
    foremost,
    place,
    rank,
    tally,
)
from purser.kube import Client, Clock, EventRecorder, Informer, KubeError, SystemClock
from purser.kube.objects import Pod
from purser.kube.resources import PODS, node_ref
from purser.scheduler.arrivals import Arrivals
from purser.scheduler.binding import RESOLVE_PERIOD_S, Binder, BindError
from purser.scheduler.budgets import Budgets
from purser.scheduler.cache import ClusterCache
from purser.scheduler.early_nominations import EarlyNominations
from purser.scheduler.eligibility import is_of_others, prefers_nodes
from purser.scheduler.extender_api import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
)
from purser.scheduler.keys import GrantKeys, SigningKeyError
from purser.scheduler.leadership_gate import LeadershipGate, NotLeadingError
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.preemptor import Preemptor
from purser.scheduler.requeue_hints import RequeueHints
from purser.scheduler.reservations import Reservations

MAX_WHY = 1024
"""Characters of why a node is refused. Pods, and agents of nodes, have their say in it, it stands in the answer once or
twice for each node of the cluster, and kube-scheduler's event takes no more."""

log = structlog.get_logger("purser.scheduler")


class KubeExtender:
    """Answers kube-scheduler out of the cache."""

    def __init__(
        self,
        cache: ClusterCache,
        client: Client,
        keys: GrantKeys,
        arrivals: Arrivals,
        policy: PolicySettings,
        metrics: SchedulerMetrics,
        events: EventRecorder,
        *,
        scheduler_name: str = SCHEDULER_NAME,
        may_bind: Callable[[], bool] = lambda: True,
        budgets: Budgets | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._scheduler_name = scheduler_name
        self._cache = cache
        self._keys = keys
        self._arrivals = arrivals
        self._evaluator = evaluator = Evaluator(cache.fleet, policy, arrivals.mix)
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._gate = LeadershipGate(may_bind, self._catch_up)
        self._readings = arrivals.readings
        self._reservations = Reservations(cache, evaluator, self._clock)
        self._binder = Binder(
            client, cache, keys, self._reservations, self._gate, self._clock, events, self._readings, scheduler_name
        )
        self._preemptor = Preemptor(
            cache,
            client,
            policy,
            budgets or Budgets(),
            events,
            self._clock,
            self._readings,
            room=self._room,
            fits=self._has_room,
            is_active=lambda: self._gate.is_open,
            is_early=self._reservations.is_early,
        )
        self._requeue_hints = RequeueHints(client, self._has_room, self._clock)
        self._early_nominations = EarlyNominations(
            cache,
            client,
            self._readings,
            self._reservations,
            metrics,
            evaluate=self._evaluate,
            is_active=lambda: self._gate.is_open and policy.nodes_to_score > 0,
            scheduler_name=scheduler_name,
        )
        self._latest: tuple[PodRequest, Evaluation] | None = None
        self._events = events
        self._failures = client.failures
        self._was_active = False
        cache.disputes.on_closed = self._tell_of_dispute

    def leadership_changed(self, held: bool) -> None:
        """The lease was won or lost."""
        self._gate.leadership_changed(held)

    def attach(self, pods: Informer[Pod]) -> None:
        """Follow the pods that wait."""
        put = self._early_nominations.put_pod
        pods.add_handler(put, lambda _, pod: put(pod), self._early_nominations.remove_pod)

    def refresh(self) -> None:
        """Take in the fleet as it was listed: else the first decision does."""
        self._evaluator.refresh()

    def not_ready(self) -> list[str]:
        """Why this part cannot answer yet; empty when it can. Not being the active replica is no reason."""
        return self._cache.not_ready()

    async def run(self) -> None:
        """Settle what became of lost answers, look at refused pods again, keep the gauges, until cancelled."""
        turns: dict[str, Callable[[], Awaitable[None]]] = {
            "bindings": self._binder.resolve,
            "leadership": self._follow_leadership,
            "disputes": self._settle_disputes,
            "waiting pods": self.retry_refused,
            "gauges": self._count_grants,
        }
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._failures.keep_going("nominations", self._early_nominations.run))
                while True:
                    for name, turn in turns.items():
                        await self._take(name, turn)
                    await self._clock.sleep(RESOLVE_PERIOD_S)
        finally:
            await self._gate.close()

    async def _take(self, name: str, turn: Callable[[], Awaitable[None]]) -> None:
        """What one of them fails on keeps none of the others from their turn."""
        try:
            await turn()
        except Exception as error:
            self._failures.loop_failed(name, error, RESOLVE_PERIOD_S)

    async def _follow_leadership(self) -> None:
        is_active = await self._is_active()
        if is_active and not self._was_active:
            self._take_over()
        self._was_active = is_active

    async def _settle_disputes(self) -> None:
        self._cache.disputes.tick()

    async def _count_grants(self) -> None:
        self._metrics.grants(self._cache.grants_by_state())

    async def drain(self) -> None:
        """Return once no Binding is under way: before the client is closed."""
        await self._binder.drain()

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Which nodes could hold the pod, and why not the others."""
        names = args.node_names or []
        try:
            await self._gate.wait_open()
        except NotLeadingError as error:
            return ExtenderFilterResult(error=str(error))
        if message := is_of_others(args.pod, self._scheduler_name):
            return _fits_nowhere(names, message)
        with self._metrics.stage("filter", "parse"):
            reading = self._readings.of(args.pod)
            asks = reading.asks_for_devices
            message = reading.objection if asks else ""
            request = reading.request() if asks and not message else None
        if message:
            return _fits_nowhere(names, message)
        if request is None:
            return ExtenderFilterResult(node_names=names)
        self._early_nominations.asked(request.uid)
        if (early := self._reservations.early_node(request)) and early in names:
            return ExtenderFilterResult(node_names=[early])
        if known := self._cache.pod_by_uid(request.uid):
            self._arrivals.put_pod(known)
        with self._metrics.stage("filter", "evaluate"):
            evaluation = self._evaluate(request, names)
            if not evaluation.fits and self._reservations.withdraw_lower(request.priority):
                evaluation = self._evaluate(request, names)
        if evaluation.refusals:
            self._count(evaluation.refusals.values())
        if evaluation.fits:
            self._requeue_hints.forget(request.uid)
            self._preemptor.forget(request.uid)
            told = self._worth_telling(args.pod, evaluation)
            self._latest = (request, told)
            return _filter_result(told)
        self._latest = None
        self._reservations.withdraw(request.uid)
        if await self._is_there(args.pod):
            self._requeue_hints.refused(request, names)
            self._preemptor.refused(request, evaluation.refusals)
        return _filter_result(evaluation, self._explain(request, evaluation))

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """0 to 10 for every node asked about; 0 where the pod does not fit or asks for nothing."""
        names = args.node_names or []
        try:
            with self._metrics.stage("prioritize", "parse"):
                request = self._readings.of(args.pod).request()
        except DialectError:
            request = None
        if request is None:
            return [HostPriority(name, 0) for name in names]
        with self._metrics.stage("prioritize", "evaluate"):
            found = self._among(request, names)
        with self._metrics.stage("prioritize", "rank"):
            scores = rank(found, self._evaluator.policy)
        if found.fits == names:
            return list(map(HostPriority, names, scores))
        by_name = dict(zip(found.fits, scores, strict=True))
        return [HostPriority(name, by_name.get(name, 0)) for name in names]

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Reserve the pod's devices on the node and post its Binding."""
        try:
            await self._binder.bind(args)
        except BindError as error:
            self._metrics.bind_failed(error.cause)
            return ExtenderBindingResult(str(error))
        return ExtenderBindingResult()

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """The node where preemption costs least, with whom it takes; the room that they leave is kept for the pod."""
        proposed = args.node_name_to_meta_victims or {}
        await self._gate.wait_open()
        try:
            request = self._readings.of(args.pod).request()
        except DialectError:
            return ExtenderPreemptionResult()
        if request is None:
            return ExtenderPreemptionResult(proposed)
        self._reservations.withdraw(request.uid)  # kube-scheduler's own filters refuse the pod there
        self._early_nominations.asked(request.uid)
        return ExtenderPreemptionResult(await self._preemptor.answer(request, proposed))

    async def retry_refused(self) -> None:
        """Wake kube-scheduler for refused pods that fit by now, and make room for others."""
        if self._gate.is_open:
            await self._early_nominations.take_back(self._reservations.withdraw_old())
            self._early_nominations.look()
            await self._requeue_hints.look()
            await self._preemptor.look()
        else:
            self._reservations.withdraw_all()
            self._early_nominations.clear()
            self._requeue_hints.clear()
            self._preemptor.clear()

    async def _is_active(self) -> bool:
        """Whether this replica decides; one that has just become the active one reads the cluster first."""
        try:
            await self._gate.wait_open()
        except NotLeadingError:
            return False
        return True

    def _take_over(self) -> None:
        """kube-scheduler lets pods rest for which it found nobody to ask, as it does those that were refused."""
        names = self._cache.fleet.names()
        for pod in self._cache.waiting_pods():
            if pod.spec.scheduler_name == self._scheduler_name:
                # Told when it is asked about.
                with self._failures.guard(PODS, pod), suppress(DialectError):
                    if request := self._readings.of(pod).request():
                        self._requeue_hints.refused(request, names)

    async def _catch_up(self) -> None:
        """Read the cluster as another active replica may have left it."""
        try:
            await self._keys.refresh()
        except SigningKeyError as error:
            raise KubeError(str(error)) from error
        await self._cache.relist()
        self._reservations.withdraw_all()  # decided on an older book
        self._early_nominations.clear()

    def _evaluate(self, request: PodRequest, names: Iterable[str]) -> Evaluation:
        """The pod's own reservation, whose Binding's outcome is unknown, must not stand in its way."""
        own = self._cache.ledger.grant(request.uid)
        left = self._room(request)
        return self._yielding(request, self._evaluator.evaluate(request, list(names), left, own), left)

    def _has_room(self, request: PodRequest, names: list[str]) -> bool:
        """As `filter` finds it."""
        return self._has_room_now(request, names) or (
            self._reservations.withdraw_lower(request.priority) and self._has_room_now(request, names)
        )

    def _has_room_now(self, request: PodRequest, names: list[str]) -> bool:
        if self._cache.nominations:
            return bool(self._evaluate(request, names).fits)
        own = self._cache.ledger.grant(request.uid)
        return self._evaluator.has_room(request, names, self._room(request), own)

    def _yielding(self, request: PodRequest, found: Evaluation, left: Room) -> Evaluation:
        """Without nodes where the pod fits, but not beside those nominated to them that it has to yield to."""
        nominated = self._cache.nominations.nodes().intersection(found.fits)
        held = {node: taken for node in nominated if (taken := self._held(node, request))}
        promised = {node for node, taken in held.items() if not self._fits_beside(node, request, left, taken)}
        if not promised:
            return found
        kept = [name not in promised for name in found.fits]
        refusals = {**found.refusals, **dict.fromkeys(promised, PROMISED)}
        return Evaluation(list(compress(found.fits, kept)), found.scores[kept], refusals)

    def _worth_telling(self, pod: Pod, found: Evaluation) -> Evaluation:
        """What kube-scheduler is told of where a pod fits: it scores every node that it is told of, by plugins and by a
        question for each, and reads a reason only where there is no node. It samples likewise, but before extenders are
        asked, when nobody knows which nodes fit."""
        policy = self._evaluator.policy
        if policy.authority is Authority.EXCLUSIVE:
            return Evaluation([name for name in (best(found),) if name], found.scores.max(keepdims=True), {})
        if not policy.nodes_to_score:
            return found
        if not prefers_nodes(pod):
            found = foremost(found, policy.nodes_to_score)
        return msgspec.structs.replace(found, refusals={})

    def _held(self, node: str, request: PodRequest) -> Mapping[str, Usage]:
        return self._cache.nominations.held(node, request, self._evaluator.policy)

    def _fits_beside(self, node: str, request: PodRequest, left: Room, held: Mapping[str, Usage]) -> bool:
        state = self._cache.fleet.without(node, {request.uid})
        return state is not None and isinstance(
            place(state.plus(held), request, self._evaluator.policy, left), Placement
        )

    def _room(self, request: PodRequest) -> Room:
        """What the quota leaves, the pod's own reservation not counted."""
        left = self._cache.room_of(request.namespace)
        held = self._cache.ledger.grant(request.uid)
        return left if held is None or left == UNLIMITED else room(left, Demand() - grant_demand(held))

    def _among(self, request: PodRequest, names: list[str]) -> Evaluation:
        """The evaluation of these nodes: that of the filter just before, unless kube-scheduler narrowed it further."""
        if self._latest is not None and self._latest[0] == request and self._latest[1].fits == names:
            return self._latest[1]
        return self._evaluate(request, names)

    def _tell_of_dispute(self, node: str, text: str) -> None:
        if self._gate.is_open:
            message = f"No new pods are given cards in dispute: {text}"
            self._events.event(node_ref(node), DisputeReason.GPU_DISPUTED, message, "Warning")

    def _count(self, refusals: Iterable[Refusal]) -> None:
        nodes_by_reason: Counter[str] = Counter()
        for refusal, nodes in tally(refusals):
            nodes_by_reason.update({reason: nodes for reason, _ in refusal.counts})
        for reason, nodes in nodes_by_reason.items():
            self._metrics.refused(reason, nodes)

    def _explain(self, request: PodRequest, evaluation: Evaluation) -> str:
        """Why no node fits, for kube-scheduler's event and condition on the pod."""
        held = self._cache.ledger.grant(request.uid)
        own = Demand() if held is None else grant_demand(held)
        quota = self._cache.exceeded_quota(request.namespace, request_demand(request), own)
        idle_only = GpuPolicy.MUTEX in self._evaluator.policy.gpu_policy(request)
        return explain(evaluation.refusals, request, self._cache.fleet, quota, idle_only=idle_only)

    async def _is_there(self, pod: Pod) -> bool:
        """Whether the pod exists, and not only in a question: kube-scheduler may have heard of it first."""
        meta = pod.metadata
        try:
            await self._binder.pod(meta.namespace, meta.name, meta.uid)
        except BindError:
            return False
        return True


def _fits_nowhere(names: list[str], message: str) -> ExtenderFilterResult:
    failed = dict.fromkeys(names, _bounded(message))
    return ExtenderFilterResult(node_names=[], failed_nodes=failed, failed_and_unresolvable_nodes=failed)


def _filter_result(evaluation: Evaluation, why: str = "") -> ExtenderFilterResult:
    """``why`` is what all nodes are refused with where none fits: kube-scheduler counts nodes by text. Each of them is
    among the failed then, for kube-scheduler 1.20 reads nothing else."""
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    why = _bounded(why)
    for name, refusal in evaluation.refusals.items():
        message = why or _bounded(refusal.message)
        if not refusal.resolvable:
            unresolvable[name] = message
        if refusal.resolvable or not evaluation.fits:
            failed[name] = message
    return ExtenderFilterResult(list(evaluation.fits), failed, unresolvable)


def _bounded(message: str) -> str:
    return message if len(message) <= MAX_WHY else brief(message, MAX_WHY)
