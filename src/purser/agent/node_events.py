"""Events on the node and its pods that no other part of the agent posts by itself."""

from collections.abc import Iterable

from purser.agent.pods import NodePods
from purser.agent.reasons import AgentReason
from purser.agent.refusals import AllocationRefused
from purser.kube.events import EventRecorder
from purser.kube.objects import Pod
from purser.kube.resources import PODS, node_ref, ref_of


class NodeEvents:
    """The warnings of one node's agent."""

    def __init__(self, recorder: EventRecorder, node: str, pods: NodePods) -> None:
        self._recorder = recorder
        self._node = node
        self._pods = pods

    def warn(self, reason: AgentReason, message: str) -> None:
        """About the node."""
        self._recorder.event(node_ref(self._node), reason, message, type="Warning")

    def config_problem(self, problem: str) -> None:
        """Of the device plugin's configuration, and what holds instead; empty: it is good again."""
        if problem:
            self.warn(AgentReason.CONFIG_NOT_USABLE, problem)

    def config_partly_applied(self, notes: Iterable[str]) -> None:
        """What of the configuration that holds is not followed to the letter, a sentence each."""
        for note in notes:
            self.warn(AgentReason.CONFIG_IN_PART, note)

    def empty_mig(self, gpu: str) -> None:
        """A GPU, by its name, is in MIG mode without a MIG device."""
        message = (
            f"{gpu} has MIG enabled but no MIG devices, so pods cannot use it. Create MIG devices or disable MIG mode"
        )
        self.warn(AgentReason.MIG_EMPTY, message)

    def refused(self, refusal: AllocationRefused) -> None:
        """kubelet was refused the devices of these pods."""
        for key in refusal.pods:
            pod = self._pods.look_up_pod(key)
            if pod is not None:
                self._recorder.event(ref_of(PODS, pod), refusal.reason, refusal.message, type="Warning")

    def enforcement_changed(self, pod: Pod, message: str) -> None:
        """Something else holds the pod's share than its grant says."""
        self._recorder.event(ref_of(PODS, pod), AgentReason.ENFORCEMENT_CHANGED, message, type="Warning")

    def nics_distant(self, pod: Pod, message: str) -> None:
        """The pod has fewer pairs of GPUs and network devices than its grant was made for."""
        self._recorder.event(ref_of(PODS, pod), AgentReason.NIC_APART, message, type="Warning")
