"""Pods that HAMi's scheduler placed on nodes of Purser's agents: they are given a grant, so that the agents serve them.

HAMi's scheduler knows such a node by the registration that its agent keeps up to date
(`purser.core.vendors.hami_nodes`). It writes the devices on the pod, locks the node for the pod and binds; from then on
it waits for what HAMi's device plugin would do: report success, and unlock the node.

The lock is what shows that HAMi's scheduler placed the pod: who may create pods may write all the rest, and the node's
name, but not the node.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from purser.adapters.pods import devices_asked
from purser.core.dialects import hami
from purser.core.fleet import NodeState
from purser.core.grant.adopting import AdoptionError, adopted_grant
from purser.core.model import Grant, PodRequest
from purser.core.names import GRANT_ANNOTATION
from purser.core.pod.manifest import PodManifest
from purser.core.vendors.hami_nodes import PLUGIN_LOCK, REGISTER_ANNOTATION
from purser.core.vendors.locks import LockHolder, read_lock
from purser.kube import Client, EventRecorder, Informer
from purser.kube.objects import Node, Pod
from purser.kube.pods import has_started, is_terminal
from purser.scheduler.binding.late_grants import LateGrants
from purser.scheduler.binding.node_locks import NodeLocks
from purser.scheduler.cache import ClusterCache
from purser.scheduler.keys import GrantKeys


class HamiPods(LateGrants):
    """Grants what HAMi's scheduler chose, or nothing."""

    REFUSED = MappingProxyType({hami.BIND_PHASE: hami.FAILED})

    def __init__(
        self,
        client: Client,
        cache: ClusterCache,
        keys: GrantKeys,
        pods: Informer[Pod],
        nodes: Informer[Node],
        events: EventRecorder,
        is_active: Callable[[], bool],
    ) -> None:
        """``is_active``: whether this replica is the one that acts."""
        super().__init__(client, cache, keys, pods, events, is_active)
        self._nodes = nodes
        self._locks = NodeLocks(client, cache)

    async def run(self) -> None:
        """See to them until cancelled. The cache must follow the informers already."""
        self._nodes.add_handler(on_update=self._node_changed)
        await super().run()

    def _node_changed(self, old: Node, node: Node) -> None:
        """An agent may have taken the node over while a pod was on its way there; and the pod may be seen before the
        lock that was taken for it."""
        before, now = (_hami_registration(each) for each in (old, node))
        if now != before and all(now):
            for pod in list(self._pods.store.values()):
                if pod.spec.node_name == node.metadata.name:
                    self._put(pod)

    def _awaits_grant(self, pod: Pod) -> bool:
        annotations, node = pod.metadata.annotations, pod.spec.node_name
        return (
            annotations.get(hami.BIND_PHASE) == hami.ALLOCATING
            and annotations.get(hami.VGPU_NODE) == node
            and GRANT_ANNOTATION not in annotations
            and bool(node and devices_asked(pod))
            and not (has_started(pod) or is_terminal(pod))
            and self._cache.is_hami_node(node)
            and not self._cache.is_served_by_hami(node)
            and self._is_locked_for(node, pod)
        )

    def _is_locked_for(self, name: str, pod: Pod) -> bool:
        node = self._cache.node(name)
        lock = None if node is None else node.metadata.annotations.get(PLUGIN_LOCK.annotation)
        held = read_lock(PLUGIN_LOCK, lock, self._cache.clock.now().timestamp())
        return held is not None and held.holder == LockHolder(pod.metadata.namespace, pod.metadata.name)

    def _reserve(self, spec: PodManifest, request: PodRequest, node: NodeState) -> Grant:
        recorded = hami.recorded_grant(spec)
        if recorded is None:
            raise AdoptionError("HAMi's scheduler did not record any GPUs for the pod")
        return self._enter(request, adopted_grant(request, recorded, node.inventory))

    def _annotations(self, pod: Pod, request: PodRequest, grant: Grant, node: NodeState) -> Mapping[str, str]:
        containers = len(pod.spec.init_containers) + len(pod.spec.containers)
        return {hami.BIND_PHASE: hami.SUCCESS, hami.DEVICES_TO_ALLOCATE: hami.no_devices(containers)}

    async def _release_lock(self, pod: Pod, grant: Grant | None) -> None:
        await self._locks.give_back(pod.spec.node_name, PLUGIN_LOCK, pod)


def _hami_registration(node: Node) -> tuple[str, str]:
    """Its registration and its lock; empty where there is none."""
    annotations = node.metadata.annotations
    return annotations.get(REGISTER_ANNOTATION, ""), annotations.get(PLUGIN_LOCK.annotation, "")
