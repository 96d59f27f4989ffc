"""What is free of nodes beside their GPUs, brought to the fleet from Nodes, pods and reservations.

Every pod that is bound and has not ended takes resources of its node, with GPUs or without, as kube-scheduler counts
it. The sum per node is updated incrementally: each pod adds its amount and later subtracts the same.
"""

import msgspec
import structlog

from purser.adapters.nodes import allocatable
from purser.adapters.pods import pod_spec
from purser.core.fleet import Fleet, FreeResources
from purser.core.kubernetes.quantities import QuantityError, QuantityLike
from purser.core.model import Grant, PodRequest
from purser.core.pod.requests import EffectiveRequests, pod_resources
from purser.kube.objects import Node, Pod, PodSpec
from purser.kube.resources import key_of

log = structlog.get_logger("purser.scheduler")


class _TakenResources(msgspec.Struct, frozen=True, gc=False):
    """What pods take of a node together."""

    pods: int = 0
    resources: EffectiveRequests = EffectiveRequests()


class _Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod that takes of a node."""

    node: str
    resources: EffectiveRequests
    spec: PodSpec | None
    """What ``resources`` was read from, the informer's own; None for one that is only expected."""


class NodeFreeResources:
    """Keeps the fleet's free resources fresh."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._amounts: dict[str, dict[str, QuantityLike]] = {}
        self._sizes: dict[str, FreeResources] = {}
        self._taken: dict[str, _TakenResources] = {}
        self._pods: dict[str, _Pod] = {}

    def put_node(self, node: Node) -> None:
        """Take what a node has for pods where it changed. Of one whose amounts cannot be read nothing is known."""
        name, amounts = node.metadata.name, node.status.allocatable
        if self._amounts.get(name) == amounts:
            return
        self._amounts[name] = amounts
        try:
            self._sizes[name] = allocatable(node)
        except QuantityError as error:
            log.warning("A node's allocatable resources are invalid, so they are ignored", node=name, error=str(error))
            self._forget_size(name)
        self._notify(name)

    def remove_node(self, node: Node) -> None:
        """The node is gone; what its pods take is known until they are gone as well."""
        self._amounts.pop(node.metadata.name, None)
        self._forget_size(node.metadata.name)

    def put_pod(self, pod: Pod) -> None:
        """A pod is on its node. Its amounts are read once, and again where its spec changed: pods can be resized."""
        uid, spec = pod.metadata.uid, pod.spec
        known = self._pods.get(uid)
        if known is not None and known.spec == spec:
            self._pods[uid] = _Pod(known.node, known.resources, spec)  # the informer forgets the one before
        else:
            self._replace(uid, _Pod(spec.node_name, _resources(pod), spec))

    def remove_pod(self, pod: Pod) -> None:
        """The pod has ended."""
        self._replace(pod.metadata.uid, None)

    def assume(self, node: str, request: PodRequest) -> None:
        """A pod was given devices on a node; its Binding is on its way. A pod that is already somewhere stays there."""
        known = self._pods.get(request.uid)
        if known is None or known.spec is None:
            self._replace(request.uid, _Pod(node, EffectiveRequests(request.cpu_milli, request.memory_mib), None))

    def forget_assumed(self, grant: Grant) -> None:
        """The Binding came to nothing."""
        known = self._pods.get(grant.pod_uid)
        if known is not None and known.spec is None:
            self._replace(grant.pod_uid, None)

    def _replace(self, uid: str, pod: _Pod | None) -> None:
        """Let a pod take what it now takes in place of what it took before."""
        before = self._pods.pop(uid, None)
        if before is not None:
            taken = self._taken[before.node]
            self._set_taken(before.node, _TakenResources(taken.pods - 1, taken.resources - before.resources))
        if pod is not None:
            self._pods[uid] = pod
            taken = self._taken.get(pod.node, _TakenResources())
            self._set_taken(pod.node, _TakenResources(taken.pods + 1, taken.resources + pod.resources))
        for name in {each.node for each in (before, pod) if each is not None}:
            self._notify(name)

    def _set_taken(self, node: str, taken: _TakenResources) -> None:
        if taken.pods:
            self._taken[node] = taken
        else:
            del self._taken[node]

    def _forget_size(self, name: str) -> None:
        self._sizes.pop(name, None)
        self._fleet.forget_free_resources(name)

    def _notify(self, name: str) -> None:
        size = self._sizes.get(name)
        if size is not None:
            taken = self._taken.get(name, _TakenResources())
            self._fleet.set_free_resources(name, size.less(taken.resources, taken.pods))


def _resources(pod: Pod) -> EffectiveRequests:
    try:
        return pod_resources(pod_spec(pod))
    except QuantityError as error:
        log.warning("A pod's resource requests are invalid, so they are ignored", pod=key_of(pod), error=str(error))
        return EffectiveRequests()
