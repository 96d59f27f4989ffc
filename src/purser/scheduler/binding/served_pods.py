"""Pods of schedulers such as Volcano's that place their pods themselves, on nodes of Purser's agents.

Such a scheduler chooses the node; its queues and gangs stay its own. It knows GPUs by the amounts that nodes list, and
its own account of them is an approximation: by indices, with equal memory, and without pods of others. So the GPU that
it chose is taken where the ledger has room there, and another GPU of the node where not. The record on the pod says
which it is, and the scheduler counts by that.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from purser.adapters.pods import devices_asked
from purser.core.dialects import grant_annotations, hami
from purser.core.dialects.volcano_choice import chosen_grant
from purser.core.dialects.volcano_vgpu import VGPU_PHASE
from purser.core.fleet import NodeState
from purser.core.grant.adopting import AdoptionError, adopted_grant
from purser.core.ledger import LedgerError
from purser.core.model import Grant, PodRequest
from purser.core.names import AWAITS_GRANT, AWAITS_GRANT_ANNOTATION, GRANT_ANNOTATION, NOT_GRANTED
from purser.core.placement import Placement, PolicySettings, place, to_grant
from purser.core.placement.asked import asked_annotation
from purser.core.pod.manifest import PodManifest
from purser.core.vendors.volcano_nodes import VOLCANO_LOCKS
from purser.kube import Client, EventRecorder, Informer, ref_of
from purser.kube.objects import Pod
from purser.kube.pods import has_started, is_terminal
from purser.kube.resources import PODS
from purser.scheduler.binding.binder import granted_sentence
from purser.scheduler.binding.late_grants import LateGrants
from purser.scheduler.binding.node_locks import NodeLocks
from purser.scheduler.cache import ClusterCache
from purser.scheduler.keys import GrantKeys
from purser.scheduler.reasons import SchedulerReason


class ServedPods(LateGrants):
    """Grants GPUs of the node that another scheduler chose."""

    REFUSED = MappingProxyType({AWAITS_GRANT_ANNOTATION: NOT_GRANTED, VGPU_PHASE: hami.FAILED})

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        pods: Informer[Pod],
        events: EventRecorder,
        is_active: Callable[[], bool],
        served: Collection[str],
        policy: PolicySettings,
    ) -> None:
        """``is_active``: whether this replica is the one that acts. ``served``: the names of these schedulers."""
        super().__init__(client, cache, keys, pods, events, is_active)
        self._served = frozenset(served)
        self._policy = policy
        self._locks = NodeLocks(client, cache)

    def _awaits_grant(self, pod: Pod) -> bool:
        annotations, node = pod.metadata.annotations, pod.spec.node_name
        return (
            pod.spec.scheduler_name in self._served
            and annotations.get(AWAITS_GRANT_ANNOTATION) == AWAITS_GRANT
            and GRANT_ANNOTATION not in annotations
            and bool(node and devices_asked(pod))
            and not (has_started(pod) or is_terminal(pod))
            and not self._cache.is_served_by_hami(node)
        )

    def _reserve(self, spec: PodManifest, request: PodRequest, node: NodeState) -> Grant:
        chosen = chosen_grant(spec, request, node.inventory)
        if chosen is not None:
            try:
                return self._enter(request, adopted_grant(request, chosen, node.inventory))
            except (AdoptionError, LedgerError):
                pass  # as the other scheduler knows the node, and not as it is
        left = self._cache.quota_remaining(request.namespace, request.family)
        found = place(node, request, self._policy, left)
        if not isinstance(found, Placement):
            raise AdoptionError(found.message)
        return self._enter(request, to_grant(found, request, node.inventory))

    def _annotations(self, pod: Pod, request: PodRequest, grant: Grant, node: NodeState) -> Mapping[str, str]:
        at_ns = round(self._cache.clock.now().timestamp() * 1e6) * 1000
        spec = self._cache.readings.of(pod).spec
        record = grant_annotations(spec, request.systems, grant, node.inventory, at_ns)
        return {**record, VGPU_PHASE: hami.SUCCESS} if VGPU_PHASE in spec.annotations else record

    async def _release_lock(self, pod: Pod, grant: Grant | None) -> None:
        there = self._cache.node(pod.spec.node_name)
        for lock in VOLCANO_LOCKS:
            if there is not None and lock.annotation in there.metadata.annotations:
                await self._locks.give_back(pod.spec.node_name, lock, pod)
        if grant is not None:
            request = self._cache.readings.of(pod).request()
            asked = {} if request is None else asked_annotation(request, grant)
            message = granted_sentence(self._cache, grant)
            self._events.event(ref_of(PODS, pod), SchedulerReason.GRANTED, message, annotations=asked)
