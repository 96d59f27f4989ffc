"""What becomes of pods that a node's kubelet is about to take, answered as Purser's agent will answer it."""

from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from purser.core import device_ids
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import Allocate, Ask, Outcome, PreferredAllocation, Refusal
from purser.core.kubelet.state import Node, NodeState
from purser.core.names import GPU_RESOURCE
from purser.core.outlook import Arrival


class Diverted(msgspec.Struct, frozen=True):
    """kubelet would go for other devices than a container was granted; the agent refuses it these."""

    uid: str
    """Of the pod."""
    container: str
    available: frozenset[str]
    """uuids of the devices that it would choose from."""
    required: frozenset[str]
    """uuids of those that it would take whatever it is told."""


class Refused(msgspec.Struct, frozen=True):
    """kubelet would refuse a pod by itself."""

    uid: str
    """Of the pod."""
    refusal: Refusal

    @property
    def container(self) -> str:
        """Empty where the pod as a whole is refused."""
        return self.refusal.container


Foreseen = NodeState | Refused | Diverted


def foresee(node: Node, state: NodeState, order: Sequence[Arrival]) -> Foreseen:
    """What kubelet holds after it has taken pods one after another, or the first bad end, which ends it."""
    for arrival in order:
        outcome = _admit(node, state, arrival)
        if isinstance(outcome, Diverted):
            return outcome
        if outcome.refusal is not None:
            return Refused(arrival.pod.uid, outcome.refusal)
        state = outcome.state
    return state


def _admit(node: Node, state: NodeState, arrival: Arrival) -> Outcome | Diverted:
    admission = admit(node, state, arrival.pod, None)
    try:
        ask = next(admission)
        while True:
            answer = _answer(ask, arrival)
            if isinstance(answer, Diverted):
                return answer
            ask = admission.send(answer)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def _answer(ask: Ask, arrival: Arrival) -> tuple[str, ...] | bytes | Diverted:
    """What the agent will answer; for other plugins' devices kubelet is left to itself."""
    if ask.resource != GPU_RESOURCE:
        return () if isinstance(ask, PreferredAllocation) else b""
    granted = arrival.granted.get(ask.container[1], ())
    if isinstance(ask, Allocate):
        taken = device_ids.uuids_of(ask.device_ids)
        return (
            b"" if Counter(taken) == Counter(granted) else Diverted(*ask.container, frozenset(taken), frozenset(taken))
        )
    return _preferred(ask, granted)


def _preferred(ask: PreferredAllocation, granted: Collection[str]) -> tuple[str, ...] | Diverted:
    required = device_ids.uuids_of(ask.must_include)
    available = frozenset(map(device_ids.uuid_of, ask.available))
    if not (set(required) <= set(granted) <= available and len(granted) == ask.size):
        return Diverted(*ask.container, available, frozenset(required))
    ranked = (*sorted(ask.must_include, key=device_ids.id_order), *sorted(ask.available, key=device_ids.id_order))
    first = {device_ids.uuid_of(id_): id_ for id_ in reversed(ranked)}
    return tuple(first[uuid] for uuid in granted)
