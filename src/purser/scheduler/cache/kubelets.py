"""What nodes' kubelets were last seen to have and to hold, brought to the fleet from Nodes, pods and reservations.

A node's own agent reports it in an annotation. Where there is none, a NodeResourceTopology object of another exporter
serves, as far as it goes.
"""

from collections.abc import Callable

import msgspec
import structlog

from purser.adapters.pods import grant_state, pod_spec
from purser.core.decoding import brief
from purser.core.fleet import Fleet
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.noderesourcetopology import Attribute, TopologyError, Zone, read
from purser.core.kubelet.pod import KubeletPod, QosClass, kubelet_pod
from purser.core.kubelet.report import ReportError, check_coherence, decode, node_of, state_of
from purser.core.kubelet.topologymanager import policy_for
from purser.core.kubernetes.quantities import QuantityError
from purser.core.model import Grant, GrantState, PodRequest
from purser.core.names import KUBELET_ANNOTATION
from purser.kube.objects import MIRROR_POD_ANNOTATION, STATIC_POD_UID_ANNOTATION, Node, ObjectMeta, Pod
from purser.kube.resources import key_of

log = structlog.get_logger("purser.scheduler")


class NodeResourceTopology(msgspec.Struct, frozen=True, rename="camel"):
    """One node as another exporter sees it (topology.node.k8s.io/v1alpha2)."""

    metadata: ObjectMeta = ObjectMeta()
    topology_policies: tuple[str, ...] = ()
    """Deprecated by ``attributes``."""
    attributes: tuple[Attribute, ...] = ()
    zones: tuple[Zone, ...] = ()


class Kubelets:
    """Keeps the fleet's snapshots fresh."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._texts: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._uids: dict[str, str] = {}
        """Of pods on nodes, by which kubelet knows them; by the API's."""
        self.on_unreadable: Callable[[str, str], None] = lambda node, problem: None
        """Called for a node whose kubelet report does not count, with the reason."""

    def put_node(self, node: Node) -> None:
        """Take a node's report where it changed."""
        name, text = node.metadata.name, node.metadata.annotations.get(KUBELET_ANNOTATION, "")
        version = node.status.node_info.kubelet_version
        if (self._texts.get(name, ""), self._versions.get(name)) == (text, version):
            return
        self._texts[name], self._versions[name] = text, version
        self._take(name)

    def remove_node(self, node: Node) -> None:
        """The node is gone."""
        self._texts.pop(node.metadata.name, None)
        self._versions.pop(node.metadata.name, None)
        self._fleet.forget_kubelet(node.metadata.name)

    def put_topology(self, topology: NodeResourceTopology) -> None:
        """What another exporter sees of a node."""
        self._topologies[topology.metadata.name] = topology
        self._take(topology.metadata.name)

    def remove_topology(self, topology: NodeResourceTopology) -> None:
        """It sees nothing any more."""
        self._topologies.pop(topology.metadata.name, None)
        self._take(topology.metadata.name)

    def put_pod(self, pod: Pod) -> None:
        """A pod is on its node."""
        uid = self._uids.get(pod.metadata.uid)
        if uid is None:
            uid = self._uids[pod.metadata.uid] = self._uid(pod)
        if uid and self._fleet.pod_node(uid) != pod.spec.node_name:
            self._put_pod(pod, uid)
        if uid and grant_state(pod) is GrantState.RUNNING:
            self._fleet.mark_pod_admitted(uid)

    def _put_pod(self, pod: Pod, uid: str) -> None:
        spec = pod_spec(pod)
        try:
            known = kubelet_pod(msgspec.structs.replace(spec, uid=uid))
        except QuantityError as error:
            log.warning("A pod's resources cannot be read", pod=key_of(pod), error=str(error))
            known = None
        if known is not None and _can_be_aligned(known):
            self._fleet.put_pod(pod.spec.node_name, known)
        else:
            self._uids[pod.metadata.uid] = ""  # nothing of it concerns kubelet's managers

    def _uid(self, pod: Pod) -> str:
        """The uid by which kubelet knows a pod. Anybody can write annotations: no pod takes the place of another."""
        static = pod.metadata.annotations.get(STATIC_POD_UID_ANNOTATION, "")
        of_node = any(owner.kind == "Node" and owner.controller for owner in pod.metadata.owner_references)
        is_mirror_pod = static and of_node and pod.metadata.annotations.get(MIRROR_POD_ANNOTATION) == static
        return static if is_mirror_pod and self._fleet.pod_node(static) is None else pod.metadata.uid

    def remove_pod(self, pod: Pod) -> None:
        """The pod has ended."""
        self._fleet.forget_pod(self._uids.pop(pod.metadata.uid, pod.metadata.uid))

    def assume(self, node: str, request: PodRequest) -> None:
        """A pod was given devices on a node; its Binding is on its way."""
        if request.kubelet_pod is not None:
            self._fleet.put_pod(node, request.kubelet_pod)

    def forget_assumed(self, grant: Grant) -> None:
        """The Binding came to nothing."""
        if self._fleet.pod_node(grant.pod_uid) == grant.node:
            self._fleet.forget_pod(grant.pod_uid)

    def _take(self, name: str) -> None:
        """The best that is known of a node's kubelet."""
        try:
            if self._texts.get(name):
                self._take_report(name, self._texts[name])
            elif name in self._topologies and self._versions.get(name):
                self._take_topology(name, self._topologies[name])
            else:
                self._fleet.forget_kubelet(name)
        except (ReportError, TopologyError, KubeletStartError) as error:
            self._fleet.forget_kubelet(name)
            source = "report on the node's kubelet" if self._texts.get(name) else "node's NodeResourceTopology"
            sentence = f"The {source} is invalid, so it is ignored"
            log.warning(sentence, node=name, error=str(error))
            self.on_unreadable(name, f"{sentence}: {brief(error)}")

    def _take_report(self, name: str, text: str) -> None:
        report = decode(text)
        node, state = node_of(report), state_of(report)
        check_coherence(node, state)
        policy_for(node.config, node.machine)  # one that would not have started is none to predict
        self._fleet.set_kubelet(name, node, state)

    def _take_topology(self, name: str, topology: NodeResourceTopology) -> None:
        node, state = read(self._versions[name], topology.zones, topology.attributes, topology.topology_policies)
        check_coherence(node, state)
        policy_for(node.config, node.machine)
        self._fleet.set_kubelet(name, node, state, is_anonymous=True)


def _can_be_aligned(pod: KubeletPod) -> bool:
    return pod.qos is QosClass.GUARANTEED or any("/" in name for c in pod.containers for name in c.limits)
