"""What becomes of pods that a node's kubelet is about to take, answered as Purser's agent will answer it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from purser.core.device.answers import are_granted_devices, preferred_ids
from purser.core.device.ids import uuids_of
from purser.core.device.resources import is_gpu_resource
from purser.core.fleet.kubelet_snapshot import Arrival
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import AdmissionOutcome, Allocate, Ask, PreferredAllocation, Rejection
from purser.core.kubelet.state import KubeletNode, KubeletState, PluginDevice, PluginResource

GrantedDevices = Mapping[str, tuple[str, ...]]
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


class PoolMismatch(msgspec.Struct, frozen=True):
    """kubelet would take a container's devices of an SR-IOV pool from other NUMA nodes than its grant says."""

    uid: str
    """Of the pod."""
    container: str
    resource: str
    numa_nodes: tuple[int, ...]
    """Of those that it would choose from."""


class PredictedRejection(msgspec.Struct, frozen=True):
    """kubelet would refuse a pod by itself."""

    uid: str
    """Of the pod."""
    refusal: Rejection

    @property
    def container(self) -> str:
        """Empty where the pod as a whole is refused."""
        return self.refusal.container


Mismatch = DeviceMismatch | PoolMismatch
Prediction = KubeletState | PredictedRejection | Mismatch


def predict(node: KubeletNode, state: KubeletState, order: Sequence[Arrival]) -> Prediction:
    """What kubelet holds after it has taken pods one after another, or the first bad end, which ends it."""
    for arrival in order:
        outcome = _admit(node, state, arrival)
        if isinstance(outcome, Mismatch):
            return outcome
        if outcome.refusal is not None:
            return PredictedRejection(arrival.pod.uid, outcome.refusal)
        state = outcome.state
    return state


def _admit(node: KubeletNode, state: KubeletState, arrival: Arrival) -> AdmissionOutcome | Mismatch:
    admission = admit(node, state, arrival.pod, None)
    try:
        ask = next(admission)
        while True:
            answer = predict_agent_answer(ask, arrival)
            if isinstance(answer, Mismatch):
                return answer
            ask = admission.send(answer)
    except StopIteration as end:
        outcome: AdmissionOutcome = end.value
        return outcome


def predict_agent_answer(ask: Ask, arrival: Arrival) -> tuple[str, ...] | bytes | Mismatch:
    """What the agent will answer, a mismatch where that will not be the grant; of others' devices nothing is said."""
    if not is_gpu_resource(ask.resource):
        wanted = arrival.pools.get((ask.container[1], ask.resource))
        if wanted is None:
            return () if isinstance(ask, PreferredAllocation) else b""
        return _predict_pool_answer(ask, wanted)
    granted = arrival.granted.get(ask.container[1], ())
    if isinstance(ask, Allocate):
        return b"" if are_granted_devices(granted, ask.device_ids) else _mismatch(ask, ask.device_ids, ask.device_ids)
    preferred = preferred_ids(granted, ask.size, ask.available, ask.must_include)
    return _mismatch(ask, ask.available, ask.must_include) if preferred is None else preferred


def _mismatch(ask: Ask, available: Collection[str], must_include: Collection[str]) -> DeviceMismatch:
    return DeviceMismatch(*ask.container, frozenset(uuids_of(available)), frozenset(uuids_of(must_include)))


def _predict_pool_answer(ask: Ask, wanted: Mapping[int | None, int]) -> tuple[str, ...] | bytes | PoolMismatch:
    """kubelet decides by the NUMA nodes of a pool's devices, and so it is only these that count here. A device of which
    it knows none may be on any."""
    known = ask.state.devices.resources.get(ask.resource, PluginResource()).devices
    numa_of = {id_: _numa_node(known.get(id_)) for id_ in _ids_to_choose_from(ask)}
    if isinstance(ask, Allocate):
        unmet = Counter(wanted) - Counter(numa_of[id_] for id_ in ask.device_ids)
        unknown = sum(numa_of[id_] is None for id_ in ask.device_ids)
        return b"" if unmet.total() <= unknown else _pool_mismatch(ask, numa_of)
    chosen = sorted(ask.must_include)
    missing = Counter(wanted) - Counter(numa_of[id_] for id_ in chosen)
    anywhere: list[str] = []
    for id_ in sorted(ask.available - ask.must_include):
        if missing[numa_of[id_]] > 0:
            missing[numa_of[id_]] -= 1
            chosen.append(id_)
        elif numa_of[id_] is None:
            anywhere.append(id_)
    still_missing = (+missing).total()
    return (*chosen, *anywhere[:still_missing]) if still_missing <= len(anywhere) else _pool_mismatch(ask, numa_of)


def _ids_to_choose_from(ask: Ask) -> frozenset[str]:
    return ask.available | ask.must_include if isinstance(ask, PreferredAllocation) else ask.device_ids


def _numa_node(device: PluginDevice | None) -> int | None:
    return device.numa_nodes[0] if device is not None and device.numa_nodes else None


def _pool_mismatch(ask: Ask, numa_of: Mapping[str, int | None]) -> PoolMismatch:
    nodes = sorted({node for node in numa_of.values() if node is not None})
    return PoolMismatch(*ask.container, ask.resource, tuple(nodes))
