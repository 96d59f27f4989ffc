"""Why a pod waits, of a cluster that was read once: kube-scheduler's filters, then Purser's own decision.

The same cache and the same decision as the live scheduler's; only signatures of grants are not checked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec
from prometheus_client import CollectorRegistry

from purser.adapters.objects import ClusterObjects
from purser.core.decoding import UnreadableError, brief
from purser.core.dialects import DialectError
from purser.core.explaining.filters import FilteredNode, PodNeeds
from purser.core.fleet import Fleet
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand, remaining_quota, request_demand
from purser.core.kubernetes.quantities import QuantityError
from purser.core.model import Grant, PodRequest
from purser.core.names import INVENTORY_ANNOTATION, SCHEDULER_NAME
from purser.core.placement import Evaluation, Evaluator, Placement, PolicySettings, Reason, place, to_grant
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.core.state import StateQuota
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES
from purser.kube.failures import ObjectFailures
from purser.kube.objects import Node, ObjectReference, Pod
from purser.kube.pods import is_terminal
from purser.kube.resource_quotas import RESOURCE_QUOTAS, ResourceQuota
from purser.kube.resources import NAMESPACES, NODES, PODS, key_of, key_of_ref
from purser.kube.store import StaticStore
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining.filtering import KnownFilters
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.placed_pods import PlacedPods
from purser.scheduler.gates import gated_message
from purser.scheduler.placement import Feasibility, Reservations
from purser.scheduler.webhook import DeviceRules, Mutation


class KnownCluster:
    """One cluster as it was at one moment, and as it would be after a change."""

    def __init__(
        self,
        objects: ClusterObjects,
        policy: PolicySettings = DEFAULT_POLICIES,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        self._notes = list(objects.problems)
        self._scheduler_name = scheduler_name
        self._cache = cache = ClusterCache(None, scheduler_name=scheduler_name, families=FAMILIES)
        self._failures = failures = ObjectFailures()
        failures.report_to(CollectorRegistry(), self)
        pods = StaticStore(PODS, objects.pods, failures)
        cache.take(
            pods,
            StaticStore(NODES, objects.nodes, failures),
            StaticStore(RESOURCE_QUOTAS, objects.quotas, failures),
            StaticStore(NAMESPACES, objects.namespaces, failures),
        )
        self._evaluator = evaluator = Evaluator(cache.fleet, policy, cache.arrivals.mix)
        self._feasibility = Feasibility(cache, evaluator, Reservations(cache, evaluator))
        self._policy = policy
        self._scores: dict[str, float] = {}
        self._pods = pods.store
        self._quotas = objects.quotas
        self._nodes = objects.nodes
        self._namespaces = objects.namespaces
        self._placed = PlacedPods(self._notes.append)
        self._filters = KnownFilters(objects, self._placed, self._notes.append, has_fleet=bool(cache.fleet.names()))
        for pod in self._pods.values():
            if pod.spec.node_name and not is_terminal(pod):
                self._placed.add(pod)

    def event(self, about: ObjectReference, reason: str, message: str, type: str = "Normal") -> None:
        """What the cache would have reported on an object is a note."""
        self._notes.append(f"{about.kind} {key_of_ref(about)}: {message}")

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod by its name."""
        return self._pods.get(f"{namespace}/{name}")

    def webhook(self) -> Mutation | None:
        """Purser's, with the defaults of its options; None where no node has an agent, and so nobody asks it."""
        if not any(INVENTORY_ANNOTATION in each.metadata.annotations for each in self._nodes):
            return None
        cache = self._cache
        devices = DeviceRules((), cache.enforcements, cache.enforcement_of_namespace, FAMILY_NAMES)
        return Mutation(self._scheduler_name, cache, devices)

    def labels_of_namespace(self, name: str) -> Mapping[str, str] | None:
        """None: there is no such namespace. Where namespaces could not be read, each is there, without labels."""
        if not self._namespaces:
            return {}
        return next((each.metadata.labels for each in self._namespaces if each.metadata.name == name), None)

    def pods(self) -> Iterable[Pod]:
        """All pods."""
        return self._pods.values()

    def waiting(self) -> list[Pod]:
        """Pods that ask for devices and are on no node, by name."""
        waits = (pod for pod in self._cache.waiting_pods() if not is_terminal(pod))
        return sorted((pod for pod in waits if self._cache.readings.of(pod).asks_for_devices), key=key_of)

    def request(self, pod: Pod) -> PodRequest | None:
        """What a pod asks for; None: its request cannot be read."""
        with suppress(DialectError):
            return self._cache.readings.of(pod).request()
        return None

    @property
    def nodes(self) -> Mapping[str, FilteredNode]:
        """By name."""
        return self._filters.nodes

    @property
    def placed(self) -> PlacedPods:
        """What pods take of their nodes."""
        return self._placed

    @property
    def fleet(self) -> Fleet:
        """What Purser knows of their GPUs, and what pods hold of them."""
        return self._cache.fleet

    @property
    def largest_gpu_mib(self) -> int:
        """The memory of the largest GPU that there is; 0: there is none."""
        return max((each.device.memory_mib for node in self.fleet for each in node.devices), default=0)

    def node_object(self, name: str) -> Node | None:
        """A node as it was read."""
        return self._cache.node(name)

    def quotas(self, namespace: str) -> list[ResourceQuota]:
        """A namespace's, by name."""
        found = (each for each in self._quotas if each.metadata.namespace == namespace)
        return sorted(found, key=lambda each: each.metadata.name)

    def state_quotas(self) -> Iterator[StateQuota]:
        """How much of the quotas over GPU memory and compute is held, by namespace."""
        for namespace in sorted(self._cache.limited_namespaces):
            yield from self._cache.state_quotas(namespace)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, each once."""
        return tuple(dict.fromkeys(self._notes))

    def judge(self, pod: Pod, *, scored: bool = False) -> Judgement:
        """The verdict of every node on a pod that is not placed yet."""
        if pod.spec.scheduling_gates:
            return Judgement(objection=gated_message(pod))
        try:
            rejections = self._filters.rejections(pod)
        except (QuantityError, UnreadableError) as error:
            return Judgement(objection=brief(error))
        if objection := self._filters.objection(pod):
            return Judgement(objection=objection)
        left = [name for name in self.nodes if name not in rejections]
        reading = self._cache.readings.of(pod)
        if not (reading.asks_for_devices and self._cache.fleet.names()):
            return Judgement(tuple(left), rejections=rejections)
        if self._is_ours(pod) and reading.objection:
            return Judgement(objection=reading.objection)
        try:
            request = reading.request()
        except DialectError as error:
            return Judgement(tuple(left), rejections=rejections, objection=str(error) if self._is_ours(pod) else "")
        if request is None:
            return Judgement(tuple(left), rejections=rejections)
        found_there = self._feasibility.evaluate(request, left, scored=scored)
        if scored:
            self._scores = dict(zip(found_there.fits, found_there.scores.tolist(), strict=True))
        return Judgement(
            tuple(found_there.fits),
            rejections=rejections,
            refusals=found_there.refusals,
            request=request,
            quota=self._quota(request, found_there),
        )

    def judge_further(self, pod: Pod, found: Judgement) -> Judgement:
        """What else keeps a pod from the nodes of which a verdict has kube-scheduler's first reason."""
        names = list(found.rejections)
        later = tuple(self._filters.later_rejections(pod, names))
        if found.request is None:
            return Judgement(later_rejections=later)
        found_there = self._feasibility.evaluate(found.request, names, scored=False)
        return Judgement(
            later_rejections=later,
            refusals=found_there.refusals,
            request=found.request,
            quota=self._quota(found.request, found_there),
        )

    def scored(self, pod: Pod) -> tuple[Judgement, Mapping[str, float]]:
        """The verdict, and what the policy thinks of each node that Purser found to fit; minus infinity: it sees no
        room."""
        self._scores = {}
        found = self.judge(pod, scored=True)
        return found, self._scores

    @property
    def policy(self) -> PolicySettings:
        """Of pods that name none."""
        return self._policy

    def gpus_why(self, request: PodRequest, placement: Placement) -> str:
        """What the policy says for a placement of a pod that is not counted, in a sentence; empty: nothing."""
        state = self._cache.fleet.node(placement.node)
        there = set() if state is None else {each.device.uuid for each in state.devices}
        parts = [(each.name, each.kind) for each in request.containers]
        is_known = all(uuid in there for part in placement.containers for uuid in part.uuids)
        if not is_known or [(each.container, each.kind) for each in placement.containers] != parts:
            return ""
        return self._evaluator.why(request, placement)

    def fits_without(self, pod: Pod, request: PodRequest | None, node: str, gone: Collection[str]) -> bool:
        """Whether one node would take a pod if these pods, by uid, were gone: quick, for a search. What it finds is
        judged by all rules with `without`."""
        quota = UNLIMITED if request is None else self._quota_without(request, gone)
        if request is not None and not quota.holds(request_demand(request)):
            return False
        if not self._filters.fits_without_pods(pod, node, gone):
            return False
        if request is None:
            return True
        state = self._cache.fleet.without(node, gone)
        if state is None:
            return False
        held = self._cache.nominations.held(node, request, self._policy)
        return isinstance(place(state.plus(held), request, self._policy, quota), Placement)

    def _quota_without(self, request: PodRequest, gone: Collection[str]) -> QuotaLimits:
        quota = self._feasibility.quota_left(request)
        for uid in gone if quota != UNLIMITED else ():
            grant = self._cache.ledger.grant(uid)
            if grant is not None and (grant.namespace, grant.family) == (request.namespace, request.family):
                quota = remaining_quota(quota, Demand() - grant_demand(grant))
        return quota

    @contextmanager
    def without(self, pods: Sequence[Pod]) -> Iterator[None]:
        """As if these pods had ended."""
        amounts = [self._placed.remove(pod) for pod in pods]
        for pod in pods:
            with self._failures.guard(PODS, pod):
                self._cache.remove_pod(pod)
        try:
            yield
        finally:
            for pod, taken in zip(pods, amounts, strict=True):
                self._placed.put_back(pod, taken)
                with self._failures.guard(PODS, pod):
                    self._cache.put_pod(pod)

    @contextmanager
    def with_pod(self, pod: Pod, node: str, request: PodRequest | None) -> Iterator[None]:
        """As if a pod were on a node, which it fits."""
        if request is not None and (grant := self._grant_on(node, request)) is not None:
            self._cache.ledger.adopt(grant)
        there = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        self._placed.add(there)
        try:
            yield
        finally:
            self._placed.remove(there)
            self._cache.ledger.release(pod.metadata.uid)

    @contextmanager
    def with_nodes(self, nodes: Sequence[Node]) -> Iterator[None]:
        """As if these nodes were so."""
        before = [found for node in nodes if (found := self._cache.node(node.metadata.name)) is not None]
        self._put_nodes(nodes)
        try:
            yield
        finally:
            self._put_nodes(before)

    @contextmanager
    def with_quotas(self, quotas: Sequence[ResourceQuota]) -> Iterator[None]:
        """As if these quotas were so."""
        names = {key_of(quota) for quota in quotas}
        before = [quota for quota in self._quotas if key_of(quota) in names]
        for quota in quotas:
            self._cache.put_quota(quota)
        try:
            yield
        finally:
            for quota in before:
                self._cache.put_quota(quota)

    def _put_nodes(self, nodes: Sequence[Node]) -> None:
        self._filters.put_nodes(nodes)
        for node in nodes:
            with self._failures.guard(NODES, node):
                self._cache.put_node(node)

    def quota_left(self, request: PodRequest) -> QuotaLimits:
        """What its namespace's quotas leave of its devices."""
        return self._feasibility.quota_left(request)

    def holders(self, request: PodRequest) -> list[tuple[str, Demand]]:
        """The pods, by uid, that use of the quota that a request needs, and how much."""
        grants = self._cache.ledger.grants()
        of_quota = (each for each in grants if (each.namespace, each.family) == (request.namespace, request.family))
        return [(each.pod_uid, grant_demand(each)) for each in of_quota]

    def quota_used(self, request: PodRequest) -> Demand:
        """What its namespace's pods use of their quota over its devices."""
        return self._cache.ledger.namespace_usage(request.namespace, request.family)

    def demand_on(self, node: str, request: PodRequest) -> Demand | None:
        """What a pod would use of its namespace's quota on a node that it fits; None where it does not."""
        grant = self._grant_on(node, request)
        return None if grant is None else grant_demand(grant)

    def _grant_on(self, node: str, request: PodRequest) -> Grant | None:
        """What a pod would get there; None: nothing."""
        state = self._cache.fleet.node(node)
        if state is None:
            return None
        held = self._cache.nominations.held(node, request, self._policy)
        placed = self._evaluator.place(node, request, self._feasibility.quota_left(request), held)
        return to_grant(placed, request, state.inventory) if isinstance(placed, Placement) else None

    def _is_ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name == self._scheduler_name

    def _quota(self, request: PodRequest, found: Evaluation) -> str:
        over = any(reason is Reason.QUOTA_NOT_FIT for each in found.refusals.values() for reason, _ in each.counts)
        return self._feasibility.exceeded_quota(request, found.refusals) if over else ""

    def note(self, pod: Pod) -> str:
        """What keeps a pod from nodes, perhaps, and is not looked at; empty: nothing."""
        return self._filters.note(pod)

    def needs(self, pod: Pod) -> PodNeeds:
        """What kube-scheduler's filters read of a pod. Raises `QuantityError`, `UnreadableError`."""
        return self._filters.needs(pod)

    def grant(self, pod: Pod) -> Grant | None:
        """What a pod holds of GPUs."""
        return self._cache.ledger.grant(pod.metadata.uid)
