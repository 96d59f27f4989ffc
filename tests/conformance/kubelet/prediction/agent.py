"""kubelet's admission answered as Purser's agent answers it, by the agent's own rules of what a grant allows."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import AdmissionOutcome, Allocate, Answer, Ask, FailedAnswer
from purser.core.kubelet.pod import KubeletPod
from purser.core.kubelet.state import KubeletNode, KubeletState
from purser.core.model import ContainerGrant, Grant
from purser.core.names import GPU_RESOURCE


class Coming(NamedTuple):
    """A pod that is bound to the node and that kubelet has not admitted yet."""

    pod: KubeletPod
    grant: Grant | None = None
    """None: bound by others, without GPUs."""

    @property
    def uid(self) -> str:
        return self.pod.uid


def admitted(node: KubeletNode, state: KubeletState, coming: Coming, active: Collection[str]) -> AdmissionOutcome:
    """What kubelet does with a pod."""
    parts = {part.container: part for part in coming.grant.containers} if coming.grant else {}
    admission = admit(node, state, coming.pod, active)
    try:
        ask = next(admission)
        while True:
            ask = admission.send(_answer(ask, parts))
    except StopIteration as end:
        return end.value


def taken_in(
    node: KubeletNode, state: KubeletState, order: Sequence[Coming], active: Collection[str]
) -> tuple[KubeletState, frozenset[str]]:
    """The state after kubelet has seen these pods in turn, and which of them it took."""
    alive = {*active, *(coming.uid for coming in order)}
    taken = set()
    for coming in order:
        outcome = admitted(node, state, coming, alive)
        state = outcome.state
        if outcome.refusal is None:
            taken.add(coming.uid)
        else:
            alive.discard(coming.uid)
    return state, frozenset(taken)


def _answer(ask: Ask, parts: Mapping[str, ContainerGrant]) -> Answer:
    """Other plugins leave the choice to kubelet."""
    if ask.resource != GPU_RESOURCE:
        return b"" if isinstance(ask, Allocate) else ()
    part = parts.get(ask.container[1])
    if isinstance(ask, Allocate):
        fits = part is not None and AllocateCall(tuple(ask.device_ids)).fits(part)
        return b"" if fits else FailedAnswer("refused")
    preference = PreferredAllocationCall(ask.size, tuple(ask.available), tuple(ask.must_include))
    return preference.answer(part) if part is not None and preference.fits(part) else FailedAnswer("refused")
