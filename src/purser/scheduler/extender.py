"""What kube-scheduler asks: which nodes could hold a pod, which is best, bind it there, whom to preempt.

``filter`` and ``prioritize`` write nothing and return every node that fits, so that kube-scheduler's own scores keep
their say; the book changes at ``bind`` only. (HAMi reserves inside its filter and returns one node.)
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

from purser.core.dialects import DialectError, asks_for_devices, parse
from purser.core.model import PodRequest
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import Evaluation, Evaluator, Policy, Refusal, explain, rank, tally
from purser.core.quota import UNLIMITED, Demand, Room, grant_demand, room
from purser.kube import Client, Clock, EventRecorder, SystemClock, ref_of
from purser.kube.adapters import pod_spec
from purser.kube.objects import Pod
from purser.kube.resources import PODS
from purser.scheduler.arrivals import Arrivals
from purser.scheduler.binding import RESOLVE_EVERY_S, Binder, BindError
from purser.scheduler.cache import ClusterCache
from purser.scheduler.extender_api import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
)
from purser.scheduler.extender_fence import Fence, FencedError
from purser.scheduler.extender_preempt import victims
from purser.scheduler.keys import GrantKeys
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.wakeups import Wakeups
from purser.scheduler.webhook_rules import PLACEMENT_RULES, first_objection

EVENT_REASON = "FilteringFailed"
"""HAMi's word for it, which its users look for."""

_REMEMBERED_EVENTS = 4096

log = structlog.get_logger("purser.scheduler")


class KubeExtender:
    """Answers kube-scheduler out of the cache."""

    def __init__(
        self,
        cache: ClusterCache,
        client: Client,
        keys: GrantKeys,
        arrivals: Arrivals,
        policy: Policy,
        metrics: SchedulerMetrics,
        events: EventRecorder,
        *,
        scheduler_name: str = SCHEDULER_NAME,
        may_bind: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        self._scheduler_name = scheduler_name
        self._cache = cache
        self._keys = keys
        self._arrivals = arrivals
        self._evaluator = evaluator = Evaluator(cache.fleet, policy, arrivals.mix)
        self._metrics = metrics
        self._events = events
        self._clock = clock or SystemClock()
        self._fence = Fence(may_bind, self._catch_up)
        self._binder = Binder(client, cache, keys, evaluator, self._fence, self._clock, events)
        self._wakeups = Wakeups(client, self._has_room, self._clock)
        self._latest: tuple[PodRequest, Evaluation] | None = None
        self._said: OrderedDict[str, str] = OrderedDict()

    def leadership_changed(self, held: bool) -> None:
        """The lease was won or lost."""
        self._fence.leadership_changed(held)

    def refresh(self) -> None:
        """Take in the fleet as it was listed: else the first decision does."""
        self._evaluator.refresh()

    def not_ready(self) -> list[str]:
        """Why this part cannot answer yet; empty when it can. Not being the active replica is no reason."""
        return self._cache.not_ready()

    async def run(self) -> None:
        """Settle what became of lost answers, look at refused pods again, keep the gauges, until cancelled."""
        was_active = False
        try:
            while True:
                await self._binder.resolve()
                is_active = await self._is_active()
                if is_active and not was_active:
                    self._take_over()
                was_active = is_active
                await self.look_again()
                self._metrics.grants(self._cache.grants_by_state())
                await self._clock.sleep(RESOLVE_EVERY_S)
        finally:
            await self._fence.close()

    async def drain(self) -> None:
        """Return once no Binding is under way: before the client is closed."""
        await self._binder.drain()

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        """Which nodes could hold the pod, and why not the others."""
        names = args.node_names or []
        try:
            await self._fence.passed()
        except FencedError as error:
            return ExtenderFilterResult(error=str(error))
        pod = pod_spec(args.pod)
        if not asks_for_devices(pod):
            return ExtenderFilterResult(node_names=names)
        with self._metrics.stage("filter", "parse"):
            objection = first_objection(pod, PLACEMENT_RULES)
            request = None if objection else parse(pod)
        if objection:
            self._say(args.pod, objection.message)
            failed = dict.fromkeys(names, objection.message)
            return ExtenderFilterResult(node_names=[], failed_nodes=failed, failed_and_unresolvable_nodes=failed)
        if request is None:
            return ExtenderFilterResult(node_names=names)
        self._arrivals.put_pod(args.pod)  # kube-scheduler may have heard of it first
        with self._metrics.stage("filter", "evaluate"):
            evaluation = self._evaluate(request, names)
        self._latest = (request, evaluation)
        self._count(evaluation.refusals.values())
        if evaluation.fits:
            self._wakeups.forget(request.uid)
        else:
            self._wakeups.refused(request, names)
            self._say(args.pod, explain(evaluation.refusals))
        return _filter_result(evaluation)

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        """0 to 10 for every node asked about; 0 where the pod does not fit or asks for nothing."""
        names = args.node_names or []
        try:
            with self._metrics.stage("prioritize", "parse"):
                request = parse(pod_spec(args.pod))
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
        self._said.pop(args.pod_uid, None)
        return ExtenderBindingResult()

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """The candidates that would let the pod in, with whom it takes."""
        proposed = args.node_name_to_meta_victims or {}
        await self._fence.passed()
        try:
            request = parse(pod_spec(args.pod))
        except DialectError:
            return ExtenderPreemptionResult()
        if request is None:
            return ExtenderPreemptionResult(proposed)
        answers = {node: self._preempt_on(node, request, chosen) for node, chosen in proposed.items()}
        return ExtenderPreemptionResult({node: answer for node, answer in answers.items() if answer is not None})

    async def look_again(self) -> None:
        """Wake kube-scheduler for refused pods that fit by now."""
        if self._fence.is_open:
            await self._wakeups.look()
        else:
            self._wakeups.clear()

    async def _is_active(self) -> bool:
        """Whether this replica decides; one that has just become the active one reads the cluster first."""
        try:
            await self._fence.passed()
        except FencedError:
            return False
        return True

    def _take_over(self) -> None:
        """kube-scheduler lets pods rest for which it found nobody to ask, as it does those that were refused."""
        names = self._cache.fleet.names()
        for pod in self._cache.waiting_pods():
            if pod.spec.scheduler_name == self._scheduler_name:
                with suppress(DialectError):  # told when it is asked about
                    if request := parse(pod_spec(pod)):
                        self._wakeups.refused(request, names)

    async def _catch_up(self) -> None:
        """Read the cluster as another active replica may have left it."""
        await self._keys.refresh()
        await self._cache.relist()

    def _evaluate(self, request: PodRequest, names: Iterable[str]) -> Evaluation:
        """The pod's own reservation, whose Binding's outcome is unknown, must not stand in its way."""
        own = self._cache.ledger.grant(request.uid)
        return self._evaluator.evaluate(request, list(names), self._room(request), own)

    def _has_room(self, request: PodRequest, names: list[str]) -> bool:
        own = self._cache.ledger.grant(request.uid)
        return self._evaluator.has_room(request, names, self._room(request), own)

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

    def _preempt_on(self, node: str, request: PodRequest, chosen: MetaVictims) -> MetaVictims | None:
        proposed = [pod.uid for pod in chosen.pods or ()]
        gone = victims(
            self._cache.fleet,
            node,
            request,
            self._evaluator.policy,
            proposed,
            self._lower_pods(node, request.priority),
            self._room(request),
        )
        return None if gone is None else MetaVictims(tuple(map(MetaPod, gone)), chosen.num_pdb_violations)

    def _lower_pods(self, node: str, priority: int) -> list[str]:
        """Pods with grants on a node that the priority outranks, the least important first, then by uid."""
        pods = (self._cache.pod_by_uid(grant.pod_uid) for grant in self._cache.ledger.grants(node))
        lower = [pod for pod in pods if pod is not None and pod.spec.priority < priority]
        return [pod.metadata.uid for pod in sorted(lower, key=lambda pod: (pod.spec.priority, pod.metadata.uid))]

    def _count(self, refusals: Iterable[Refusal]) -> None:
        nodes_by_reason: Counter[str] = Counter()
        for refusal, nodes in tally(refusals):
            nodes_by_reason.update({reason: nodes for reason, _ in refusal.counts})
        for reason, nodes in nodes_by_reason.items():
            self._metrics.refused(reason, nodes)

    def _say(self, pod: Pod, message: str) -> None:
        """An event on the pod, once as long as nothing changes: kube-scheduler tries again and again."""
        uid = pod.metadata.uid
        if self._said.get(uid) == message:
            return
        self._said[uid] = message
        self._said.move_to_end(uid)
        if len(self._said) > _REMEMBERED_EVENTS:
            self._said.popitem(last=False)
        self._events.event(ref_of(PODS, pod), EVENT_REASON, message, "Warning")


def _filter_result(evaluation: Evaluation) -> ExtenderFilterResult:
    """Where no node fits, each one is among the failed: kube-scheduler 1.20 reads nothing else."""
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    messages: dict[int, str] = {}
    for name, refusal in evaluation.refusals.items():
        message = messages.get(id(refusal))
        if message is None:
            message = messages[id(refusal)] = refusal.message
        if not refusal.resolvable:
            unresolvable[name] = message
        if refusal.resolvable or not evaluation.fits:
            failed[name] = message
    return ExtenderFilterResult(list(evaluation.fits), failed, unresolvable)
