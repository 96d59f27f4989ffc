"""Events about disputed GPUs: on the node, and on the pods that hold devices without a grant. Each text is said once
while it is so: reports change in amounts, too, of which events do not speak."""

from purser.agent.latest import Latest
from purser.agent.pods import NodePods
from purser.agent.reasons import AgentReason
from purser.core.grant.disputes import DisputeReason, HeldPod, HeldReason, NodeDisputes, sentence
from purser.kube.events import EventRecorder
from purser.kube.resources import PODS, node_ref, ref_of


class DisputeEvents:
    """The events of one node."""

    def __init__(self, recorder: EventRecorder, node: str, pods: NodePods, told: Latest[NodeDisputes | None]) -> None:
        """``told``: the disputes as they are now; None until they are known."""
        self._recorder = recorder
        self._node = node
        self._pods = pods
        self._told = told

    async def run(self) -> None:
        """Report what is new in them until cancelled."""
        about = node_ref(self._node)
        said, on_node, seen = dict[str, str](), "", None
        while True:
            told = seen = await self._told.wait_for_change(seen)
            if told is None:
                continue
            before, said = said, {}
            for held in told.held:
                pod = self._pods.get(held.key)
                if not held.gpus or held.why is HeldReason.ENDED or pod is None:
                    continue
                said[held.uid] = _held_message(held)
                if before.get(held.uid) != said[held.uid]:
                    self._recorder.event(
                        ref_of(PODS, pod), AgentReason.HOLDS_WITHOUT_GRANT, said[held.uid], type="Warning"
                    )
            text = sentence(told)
            if text and text != on_node:
                self._recorder.event(about, DisputeReason.GPU_DISPUTED, text, type="Warning")
            elif on_node and not text:
                self._recorder.event(
                    about, DisputeReason.GPU_DISPUTE_SETTLED, "The records of the node's GPUs are consistent again"
                )
            on_node = text


def _held_message(held: HeldPod) -> str:
    gpus = ", ".join(sorted(held.gpus))
    if held.why is HeldReason.NEVER_GRANTED:
        those = "this GPU" if len(held.gpus) == 1 else "these GPUs"
        return f"The pod holds {gpus} without a grant from Purser: no other pod gets {those} until this pod terminates"
    cause = "The pod's grant annotation was removed"
    if held.why is HeldReason.GRANT_UNTRUSTED:
        cause = "The pod's grant is no longer valid: its annotation was changed, or the key that signed it was revoked"
    return f"{cause}. The pod keeps its share of {gpus} until it terminates, and no other pod gets that share"
