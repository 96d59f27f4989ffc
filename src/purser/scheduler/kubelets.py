"""What nodes' kubelets were last seen to have and to hold, brought to the fleet from Nodes, pods and reservations."""

import msgspec
import structlog

from purser.core.fleet import Fleet
from purser.core.kubelet.errors import StartError
from purser.core.kubelet.pod import KubeletPod, QosClass, kubelet_pod
from purser.core.kubelet.report import ReportError, check_coherence, decode, node_of, state_of
from purser.core.kubelet.topologymanager import policy_for
from purser.core.model import Grant, PodRequest
from purser.core.names import KUBELET_ANNOTATION
from purser.core.quantities import QuantityError
from purser.kube.adapters import pod_spec
from purser.kube.objects import Node, Pod

STATIC_POD_UID = "kubernetes.io/config.hash"
"""On the API's image of a static pod: the uid by which kubelet itself knows it."""

log = structlog.get_logger("purser.scheduler")


class Kubelets:
    """Keeps the fleet's outlooks fresh."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._texts: dict[str, str] = {}

    def put_node(self, node: Node) -> None:
        """Take a node's report where it changed."""
        name, text = node.metadata.name, node.metadata.annotations.get(KUBELET_ANNOTATION, "")
        if self._texts.get(name, "") == text:
            return
        self._texts[name] = text
        if not text:
            self._fleet.forget_kubelet(name)
            return
        try:
            self._take_report(name, text)
        except (ReportError, StartError) as error:
            log.warning("What a node says of its kubelet does not count", node=name, error=str(error))
            self._fleet.forget_kubelet(name)

    def remove_node(self, node: Node) -> None:
        """The node is gone."""
        self._texts.pop(node.metadata.name, None)
        self._fleet.forget_kubelet(node.metadata.name)

    def put_pod(self, pod: Pod) -> None:
        """A pod is on its node."""
        uid = _uid(pod)
        if self._fleet.pod_node(uid) == pod.spec.node_name:
            return
        spec = pod_spec(pod)
        try:
            known = kubelet_pod(msgspec.structs.replace(spec, uid=uid))
        except QuantityError as error:
            log.warning("A pod's resources cannot be read", pod=f"{spec.namespace}/{spec.name}", error=str(error))
            return
        if _may_be_aligned(known):
            self._fleet.put_pod(pod.spec.node_name, known)

    def remove_pod(self, pod: Pod) -> None:
        """The pod has ended."""
        self._fleet.forget_pod(_uid(pod))

    def expect(self, node: str, request: PodRequest) -> None:
        """A pod was given devices on a node; its Binding is on its way."""
        if request.kubelet_pod is not None:
            self._fleet.put_pod(node, request.kubelet_pod)

    def expect_no_more(self, grant: Grant) -> None:
        """The Binding came to nothing."""
        if self._fleet.pod_node(grant.pod_uid) == grant.node:
            self._fleet.forget_pod(grant.pod_uid)

    def _take_report(self, name: str, text: str) -> None:
        report = decode(text)
        node, state = node_of(report), state_of(report)
        check_coherence(node, state)
        policy_for(node.config, node.machine)  # one that would not have started is none to predict
        self._fleet.set_kubelet(name, node, state)


def _uid(pod: Pod) -> str:
    return pod.metadata.annotations.get(STATIC_POD_UID) or pod.metadata.uid


def _may_be_aligned(pod: KubeletPod) -> bool:
    return pod.qos is QosClass.GUARANTEED or any("/" in name for c in pod.containers for name in c.limits)
