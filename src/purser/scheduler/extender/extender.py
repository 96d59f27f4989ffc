"""What kube-scheduler asks: which nodes could hold a pod, which is best, bind it there, whom to preempt.

Room that is being made for a pod is kept from pods of the same and of lower priority (`nominations`).

``filter`` and ``prioritize`` write nothing and return the best of the nodes that fit, so many that kube-scheduler's own
scores keep their say; the book changes at ``bind`` only. (HAMi reserves inside its filter and returns one node.)
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress

import msgspec
import structlog

from purser.adapters.eligibility import other_scheduler, prefers_nodes
from purser.core.consistency import InvariantViolation
from purser.core.decoding import brief
from purser.core.dialects import DialectError
from purser.core.grant.disputes import DisputeReason
from purser.core.model import PodRequest
from purser.core.placement import (
    Authority,
    Causes,
    Evaluation,
    Evaluator,
    PolicySettings,
    Refusal,
    best,
    best_nodes,
    rank,
)
from purser.core.placement.reasons import nodes_by_reason
from purser.kube import Client, EventRecorder, Informer, KubeError
from purser.kube.objects import Pod
from purser.kube.resources import PODS, node_ref
from purser.scheduler.binding import RESOLVE_PERIOD_S, Binder, BindError
from purser.scheduler.cache import ClusterCache
from purser.scheduler.decision_log import NO_LOG, DecisionLog
from purser.scheduler.explaining import PodAdvisor, PodSearch
from purser.scheduler.extender.early_nominations import EarlyNominations
from purser.scheduler.extender.requeue_hints import RequeueHints
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
from purser.scheduler.pending import PendingPods
from purser.scheduler.placement import Feasibility, Reservations
from purser.scheduler.preemption import Preemptor
from purser.scheduler.reasons import PendingReason

MAX_REASON_CHARACTERS = 1024
"""Characters of why a node is refused. Pods, and agents of nodes, have their say in it, it stands in the answer once or
twice for each node of the cluster, and kube-scheduler's event takes no more."""

log = structlog.get_logger("purser.scheduler")


class KubeExtender:
    """Answers kube-scheduler out of the cache."""

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        policy: PolicySettings,
        metrics: SchedulerMetrics,
        events: EventRecorder,
        may_bind: Callable[[], bool] = lambda: True,
        make_log: Callable[[Evaluator], DecisionLog] = lambda _: NO_LOG,
    ) -> None:
        """``may_bind``: whether this replica is the one that places pods; ``make_log``: the log of decisions made with
        this evaluator."""
        self._cache = cache
        self._keys = keys
        self._metrics = metrics
        self._events = events
        self._failures = client.failures
        self._gate = gate = LeadershipGate(may_bind, self._catch_up)
        self.pending = PendingPods(cache, policy.node)
        """Those that wait."""
        self._evaluator = evaluator = Evaluator(cache.fleet, policy, cache.arrivals.mix)
        self._log = decisions = make_log(evaluator)
        self._reservations = reservations = Reservations(cache, evaluator, decisions)
        self._feasibility = feasibility = Feasibility(cache, evaluator, reservations, decisions)
        self._binder = Binder(client, cache, keys, reservations, gate, events)
        self._preemptor = Preemptor(client, cache, feasibility, reservations, gate, events)
        self._requeue_hints = RequeueHints(client, cache, feasibility)
        self._advisor = PodAdvisor(
            cache, evaluator, reservations, events, client.failures, lambda: gate.is_open, self.pending.advised
        )
        self.searches = PodSearch(cache, evaluator, reservations, self._advisor.node_names)
        """What would make a pod fit, for readers of the state."""
        self._early_nominations = EarlyNominations(client, cache, feasibility, reservations, gate, metrics)
        self._latest: tuple[PodRequest, Evaluation] | None = None
        self._was_active = False
        cache.disputes.on_closed = self._report_dispute
        cache.arrivals.on_new_mix = cache.on_new_inventory = self._plan_ahead
        cache.on_released, cache.bound_grants.on_bound = decisions.released, decisions.bound
        self.pending.on_gone = decisions.gone

    # --- what kube-scheduler asks

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Which nodes could hold the pod, and why not the others."""
        names = args.node_names or []
        try:
            await self._gate.wait_until_open()
        except NotLeadingError as error:
            return ExtenderFilterResult(error=str(error))
        if message := other_scheduler(args.pod, self._cache.scheduler_name):
            return _refuse_all(names, message)
        with self._metrics.stage("filter", "parse"):
            reading = self._cache.readings.of(args.pod)
            asks = reading.asks_for_devices
            message = reading.objection if asks else ""
            request = reading.request() if asks and not message else None
        if message:
            self.pending.judged(args.pod.metadata.uid, {PendingReason.INVALID_REQUEST: len(names)}, _bounded(message))
            return _refuse_all(names, message)
        if request is None:
            return ExtenderFilterResult(node_names=names)
        self._early_nominations.asked(request.uid)
        self._cache.nominations.asked(request.uid)
        if (early := self._reservations.early_node(request)) and early in names:
            return ExtenderFilterResult(node_names=[early])
        with self._metrics.stage("filter", "evaluate"):
            created = args.pod.metadata.creation_timestamp
            evaluation = self._feasibility.decide_outranking(request, names, "filter", created)
        nodes_by_reason = self._count(evaluation.refusals.values()) if evaluation.refusals else {}
        if evaluation.fits:
            self.pending.judged(request.uid, {})
            self._requeue_hints.forget(request.uid)
            self._advisor.forget(request.uid)
            self._preemptor.forget(request.uid)
            returned = self._nodes_to_return(args.pod, evaluation)
            self._latest = (request, returned)
            return _filter_result(returned)
        self._latest = None
        self._reservations.withdraw(request.uid)
        why = self._advisor.with_advice(
            request.uid, self._feasibility.explain(request, evaluation), names, MAX_REASON_CHARACTERS
        )
        self.pending.judged(request.uid, nodes_by_reason, _bounded(why), self._advisor.ways(request.uid))
        if await self._is_there(args.pod):
            self._requeue_hints.refused(request, names)
            self._advisor.refused(request, names)
            self._preemptor.refused(request, evaluation.refusals)
        return _filter_result(evaluation, why)

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """0 to 10 for every node asked about; 0 where the pod does not fit or asks for nothing."""
        names = args.node_names or []
        try:
            with self._metrics.stage("prioritize", "parse"):
                request = self._cache.readings.of(args.pod).request()
        except DialectError:
            request = None
        if request is None:
            return [HostPriority(name, 0) for name in names]
        with self._metrics.stage("prioritize", "evaluate"):
            found = self._evaluate_nodes(args.pod, request, names)
        with self._metrics.stage("prioritize", "rank"):
            scores = rank(found, self._feasibility.policy)
        if found.fits == names:
            return list(map(HostPriority, names, scores))
        by_name = dict(zip(found.fits, scores, strict=True))
        return [HostPriority(name, by_name.get(name, 0)) for name in names]

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        """Reserve the pod's devices on the node and post its Binding."""
        try:
            await self._binder.bind(args)
        except BindError as error:
            self._metrics.bind_failed(error.reason)
            return ExtenderBindingResult(_spoken(str(error)))
        return ExtenderBindingResult()

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """The node where preemption costs least, with whom it takes; the room that they leave is kept for the pod."""
        proposed = args.node_name_to_meta_victims or {}
        await self._gate.wait_until_open()
        try:
            request = self._cache.readings.of(args.pod).request()
        except DialectError:
            return ExtenderPreemptionResult()
        if request is None:
            return ExtenderPreemptionResult(proposed)
        self._reservations.withdraw(request.uid)  # kube-scheduler's own filters refuse the pod there
        self._early_nominations.asked(request.uid)
        return ExtenderPreemptionResult(await self._preemptor.answer(request, proposed))

    def _nodes_to_return(self, pod: Pod, found: Evaluation) -> Evaluation:
        """The nodes returned to kube-scheduler: it scores every one of them, by plugins and by a request for each, and
        reads a reason only where there is no node. It samples likewise, but before extenders are asked, when it is not
        known which nodes fit."""
        policy = self._feasibility.policy
        if policy.authority is Authority.EXCLUSIVE:
            return Evaluation([name for name in (best(found),) if name], found.scores.max(keepdims=True), {})
        if not policy.nodes_to_score:
            return found
        if not prefers_nodes(pod):
            found = best_nodes(found, policy.nodes_to_score)
        return msgspec.structs.replace(found, refusals={})

    def _evaluate_nodes(self, pod: Pod, request: PodRequest, names: list[str]) -> Evaluation:
        """The evaluation of these nodes: that of the filter just before, unless kube-scheduler narrowed it further."""
        if self._latest is not None and self._latest[0] == request and self._latest[1].fits == names:
            return self._latest[1]
        return self._feasibility.decide(request, names, "prioritize", pod.metadata.creation_timestamp)

    def _count(self, refusals: Iterable[Refusal]) -> Counter[str]:
        nodes = nodes_by_reason(refusals)
        for reason, count in nodes.items():
            self._metrics.refused(reason, count)
        return nodes

    async def _is_there(self, pod: Pod) -> bool:
        """Whether the pod exists, and not only in a question: kube-scheduler may have heard of it first."""
        meta = pod.metadata
        try:
            await self._binder.pod(meta.namespace, meta.name, meta.uid)
        except BindError:
            return False
        return True

    # --- what goes on beside the questions

    def leadership_changed(self, held: bool) -> None:
        """The lease was won or lost."""
        self._gate.leadership_changed(held)

    def attach(self, pods: Informer[Pod]) -> None:
        """Follow the pods that wait."""
        self.pending.attach(pods)
        put = self._early_nominations.put_pod
        pods.add_handler(put, lambda _, pod: put(pod), self._early_nominations.remove_pod)

    @property
    def places_pods(self) -> bool:
        """Whether this replica does, and knows the cluster."""
        return self._gate.is_open

    @property
    def default_policy(self) -> str:
        """For nodes, of pods that name none."""
        return self._evaluator.policy.node

    def sweep(self) -> Iterator[tuple[InvariantViolation, ...]]:
        """See `purser.core.fleet.consistency.sweep`."""
        return self._evaluator.sweep()

    def idle_gpus(self, nodes_at_once: int) -> Iterator[dict[str, Causes]]:
        """See `Evaluator.idle_gpus`."""
        return self._evaluator.idle_gpus(nodes_at_once)

    def refresh(self) -> None:
        """Take in the fleet as it is, and the pods to expect: else the next decision does."""
        self._evaluator.refresh()

    async def read_ahead(self) -> None:
        """Read the cluster as it was left, where this replica is the active one: the first question need not wait for
        it. Returns at once where it is not; a failure is reported, and costs nothing but the time."""
        await self._take("leadership", self._is_active)

    async def run(self) -> None:
        """Settle what became of lost answers, look at refused pods again, keep the gauges, until cancelled."""
        turns: dict[str, Callable[[], Awaitable[None]]] = {
            "bindings": self._binder.resolve,
            "leadership": self._follow_leadership,
            "expired state": self._drop_expired,
            "waiting pods": self.retry_refused,
            "gauges": self._count_grants,
            "decision log": self._turn_decision_log,
        }
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._failures.keep_going("nominations", self._early_nominations.run))
                group.create_task(self._failures.keep_going("advice", self._advisor.run))
                while True:
                    for name, turn in turns.items():
                        await self._take(name, turn)
                    await self._cache.clock.sleep(RESOLVE_PERIOD_S)
        finally:
            await self._gate.close()

    async def _take(self, name: str, turn: Callable[[], Awaitable[object]]) -> None:
        """What one of them fails on keeps none of the others from their turn."""
        try:
            await turn()
        except Exception as error:
            self._failures.report_loop_failure(name, error, RESOLVE_PERIOD_S)

    async def _follow_leadership(self) -> None:
        is_active = await self._is_active()
        if is_active and not self._was_active:
            self._take_over()
        self._was_active = is_active

    async def _drop_expired(self) -> None:
        self._cache.tick()

    async def _count_grants(self) -> None:
        self._metrics.grants(self._cache.grants_by_state())

    async def _turn_decision_log(self) -> None:
        self._log.turn(self._gate.is_open)

    async def drain(self) -> None:
        """Return once no Binding is under way: before the client is closed."""
        await self._binder.drain()
        await asyncio.to_thread(self._log.stop)

    async def retry_refused(self) -> None:
        """Wake kube-scheduler for refused pods that fit by now, and make room for others."""
        if self._gate.is_open:
            await self._early_nominations.withdraw_nominations(self._reservations.withdraw_expired())
            self._early_nominations.look()
            await self._requeue_hints.look()
            await self._preemptor.look()
        else:
            self._reservations.withdraw_all()
            self.pending.forget_reasons()
            self._early_nominations.clear()
            self._requeue_hints.clear()
            self._advisor.clear()
            self._preemptor.clear()

    async def _is_active(self) -> bool:
        """Whether this replica decides; one that has just become the active one reads the cluster first."""
        try:
            await self._gate.wait_until_open()
        except NotLeadingError:
            return False
        return True

    def _take_over(self) -> None:
        """kube-scheduler backs off pods for which it found no extender, as it does those that were refused."""
        names = self._cache.fleet.names()
        for pod in self._cache.waiting_pods():
            if pod.spec.scheduler_name == self._cache.scheduler_name:
                # Reported when kube-scheduler asks about it.
                with self._failures.guard(PODS, pod), suppress(DialectError):
                    if request := self._cache.readings.of(pod).request():
                        self._requeue_hints.refused(request, names)

    async def _catch_up(self) -> None:
        """Read the cluster as another active replica may have left it."""
        try:
            await self._keys.refresh()
        except SigningKeyError as error:
            raise KubeError(str(error)) from error
        await self._cache.wait_for_relist()
        self._reservations.withdraw_all()  # decided on an older book
        self.pending.forget_reasons()
        self._early_nominations.clear()
        self.refresh()
        self._log.turn(True)

    def _plan_ahead(self) -> None:
        """What policies have planned is outdated: plan again now, and not while a request waits."""
        if self._gate.is_open:
            self.refresh()

    def _report_dispute(self, node: str, text: str) -> None:
        if self._gate.is_open:
            message = f"Disputed GPUs are closed to new pods: {text}"
            self._events.event(node_ref(node), DisputeReason.GPU_DISPUTED, message, "Warning")


def _refuse_all(names: list[str], message: str) -> ExtenderFilterResult:
    failed = dict.fromkeys(names, _spoken(message))
    return ExtenderFilterResult(node_names=[], failed_nodes=failed, failed_and_unresolvable_nodes=failed)


def _filter_result(evaluation: Evaluation, why: str = "") -> ExtenderFilterResult:
    """``why`` is what all nodes are refused with where none fits: kube-scheduler counts nodes by text. Each of them is
    among the failed then, for kube-scheduler 1.20 reads nothing else."""
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    why = _spoken(why)
    for name, refusal in evaluation.refusals.items():
        message = why or _spoken(refusal.message)
        if not refusal.resolvable:
            unresolvable[name] = message
        if refusal.resolvable or not evaluation.fits:
            failed[name] = message
    return ExtenderFilterResult(list(evaluation.fits), failed, unresolvable)


def _spoken(message: str) -> str:
    """Without percent signs: kube-scheduler takes its own message for a format (``Eventf`` of handleSchedulingFailure,
    1.20 to 1.37), and its event would have ``%!o(MISSING)`` in the place of each."""
    return _bounded(message).replace("%", " percent")


def _bounded(message: str) -> str:
    return message if len(message) <= MAX_REASON_CHARACTERS else brief(message, MAX_REASON_CHARACTERS)
