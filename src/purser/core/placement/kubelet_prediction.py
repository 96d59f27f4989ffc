"""What becomes of pods that a node's kubelet is about to take, answered as Purser's agent will answer it."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from purser.core.device.answers import are_granted, preferred_ids
from purser.core.device.ids import uuids_of
from purser.core.device.resources import is_gpu_resource
from purser.core.fleet.kubelet_snapshot import Arrival
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import AdmissionOutcome, Allocate, Ask, PreferredAllocation, Rejection
from purser.core.kubelet.state import KubeletNode, KubeletState

Granted = Mapping[str, tuple[str, ...]]
"""By container, the uuids of its devices."""


class DeviceMismatch(msgspec.Struct, frozen=True):
    """kubelet would go for other devices than a container was granted; the agent refuses it these."""

    uid: str
    """Of the pod."""
    container: str
    available: frozenset[str]
    """uuids of the devices that it would choose from."""
    required: frozenset[str]
    """uuids of those that it would take in any case."""


class PredictedRejection(msgspec.Struct, frozen=True):
    """kubelet would refuse a pod by itself."""

    uid: str
    """Of the pod."""
    refusal: Rejection

    @property
    def container(self) -> str:
        """Empty where the pod as a whole is refused."""
        return self.refusal.container


Prediction = KubeletState | PredictedRejection | DeviceMismatch


def predict(node: KubeletNode, state: KubeletState, order: Sequence[Arrival]) -> Prediction:
    """What kubelet holds after it has taken pods one after another, or the first bad end, which ends it."""
    for arrival in order:
        outcome = _admit(node, state, arrival)
        if isinstance(outcome, DeviceMismatch):
            return outcome
        if outcome.refusal is not None:
            return PredictedRejection(arrival.pod.uid, outcome.refusal)
        state = outcome.state
    return state


def _admit(node: KubeletNode, state: KubeletState, arrival: Arrival) -> AdmissionOutcome | DeviceMismatch:
    admission = admit(node, state, arrival.pod, None)
    try:
        ask = next(admission)
        while True:
            answer = agents_answer(ask, arrival)
            if isinstance(answer, DeviceMismatch):
                return answer
            ask = admission.send(answer)
    except StopIteration as end:
        outcome: AdmissionOutcome = end.value
        return outcome


def agents_answer(ask: Ask, arrival: Arrival) -> tuple[str, ...] | bytes | DeviceMismatch:
    """What the agent will answer, `DeviceMismatch` where it will refuse; of others' devices nothing is said."""
    if not is_gpu_resource(ask.resource):
        return () if isinstance(ask, PreferredAllocation) else b""
    granted = arrival.granted.get(ask.container[1], ())
    if isinstance(ask, Allocate):
        return b"" if are_granted(granted, ask.device_ids) else _mismatch(ask, ask.device_ids, ask.device_ids)
    preferred = preferred_ids(granted, ask.size, ask.available, ask.must_include)
    return _mismatch(ask, ask.available, ask.must_include) if preferred is None else preferred


def _mismatch(ask: Ask, available: Collection[str], must_include: Collection[str]) -> DeviceMismatch:
    return DeviceMismatch(*ask.container, frozenset(uuids_of(available)), frozenset(uuids_of(must_include)))
