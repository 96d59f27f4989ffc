"""Why kubelet offers no id of a GPU that a container was granted. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from purser.agent.allocation.admission import ContainerTurn
from purser.agent.kubelet.calls import PreferredAllocationCall
from purser.agent.kubelet.pod_resources import ListedPod
from purser.agent.kubelet.refusals import RefusalReason
from purser.core.device.ids import uuid_of
from purser.core.model import Device
from purser.core.wording import pods_text


class UnavailableGpu(msgspec.Struct, frozen=True):
    """Why a container cannot have a GPU."""

    reason: RefusalReason
    message: str
    uuid: str
    in_the_way: tuple[str, ...] = ()
    """Keys of the pods that hold it."""


def find_unavailable_gpu(
    ask: PreferredAllocationCall, turn: ContainerTurn, listing: Iterable[ListedPod], devices: Mapping[str, Device]
) -> UnavailableGpu | None:
    """The first granted GPU without a free id, and why kubelet has none; None: each has one, or nobody knows.

    kubelet does not offer ids of unhealthy devices, nor those of pods that it has not ended yet, which may be gone from
    the API server: the scheduler hears of both a moment later than kubelet.
    """
    offered = {uuid_of(each) for each in (*ask.available, *ask.must_include)}
    pods = tuple(listing)
    for uuid in dict.fromkeys(each for each in turn.part.uuids if each not in offered):
        device = devices.get(uuid)
        if device is not None and not device.healthy:
            return UnavailableGpu(
                RefusalReason.UNHEALTHY, f"device {uuid} is unhealthy: {device.unhealthy_reason}", uuid
            )
        holders = sorted({pod.key for pod in pods if uuid in _held(pod)})
        if holders:
            who, verb = pods_text(turn.grant.namespace, holders), "holds" if len(holders) == 1 else "hold"
            message = (
                f"GPU {uuid} has no free device ID because {who} still {verb} it. Once an ID is free, recreate this pod"
            )
            return UnavailableGpu(RefusalReason.OVERCOMMIT, message, uuid, tuple(holders))
    return None


def _held(pod: ListedPod) -> frozenset[str]:
    return frozenset(uuid_of(id_) for ids in pod.containers.values() for id_ in ids)
