"""Why a device or node does not take a container: stable strings that events, metrics and ``why`` share."""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """HAMi's words, so that its users and their alerts keep reading what they know."""

    NOT_HEALTHY = "CardNotHealth"
    CORDONED = "CardCordoned"
    DISPUTED = "CardDisputed"
    """HAMi has no word for it: the node's books do not agree on who holds the card."""
    TYPE_MISMATCH = "CardTypeMismatch"
    NUMA_NOT_FIT = "NumaNotFit"
    UUID_MISMATCH = "CardUuidMismatch"
    SLOTS_EXHAUSTED = "CardTimeSlicingExhausted"
    EXCLUSIVE_CONFLICT = "ExclusiveDeviceAllocateConflict"
    QUOTA_NOT_FIT = "ResourceQuotaNotFit"
    INSUFFICIENT_MEMORY = "CardInsufficientMemory"
    INSUFFICIENT_CORES = "CardInsufficientCore"
    CORES_EXHAUSTED = "CardComputeUnitsExhausted"
    TOO_FEW_CARDS = "AllocatedCardsInsufficientRequest"
    NO_DEVICES = "NodeInsufficientDevice"
    UNREGISTERED = "node unregistered"
    KUBELET_WOULD_REJECT = "KubeletWouldReject"
    """HAMi has no word for it: its pods end on the node."""
    KUBELET_ADMISSION_PENDING = "KubeletAdmissionPending"
    """Pods are on their way to it; for a second or so."""
    NOMINATED = "NodeNominated"
    """What is free of it is for pods of higher or equal priority that were nominated to it."""


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a pod does not fit a node: what was found of its devices for the first container that could not be placed."""

    counts: tuple[tuple[Reason, int], ...]
    """How many devices for each reason, sorted by reason."""
    devices: int = 0
    """How many devices the node has."""
    container: str = ""
    resolvable: bool = False
    """Whether the pod would fit if nothing were taken of the node: preemption can help only then."""
    memory_needed_mib: int = 0
    """Per device; where the request is in percent, of the largest device that has too little."""
    memory_free_mib: int = 0
    """The most that any device with too little memory has free."""
    cores_needed_percent: int = 0
    cores_free_percent: int = 0
    count_needed: int = 0
    detail: str = ""
    """What kubelet would say, where it is kubelet that would refuse; who is in the way, where a card is disputed."""

    @property
    def message(self) -> str:
        """HAMi's form: ``7/8 CardInsufficientMemory, 1/8 CardNotHealth`` or the reason of the node as a whole."""
        if not self.devices:
            reasons = ", ".join(reason for reason, _ in self.counts)
            return f"{reasons}: {self.detail}" if self.detail else reasons
        counted = ", ".join(sorted(f"{count}/{self.devices} {reason}" for reason, count in self.counts))
        return f"{counted} ({self.detail})" if self.detail else counted


def dispute_detail(uuid: str, why: str) -> str:
    """Such as ``card GPU-... is disputed: pod ns/name holds it without a grant``."""
    return f"card {uuid} is disputed: {why}"


PROMISED = Refusal(((Reason.NOMINATED, 1),), resolvable=True)
"""The pod fits the node, but not beside pods that were nominated to it."""

UNREGISTERED = Refusal(((Reason.UNREGISTERED, 1),))
"""No inventory of the node is known."""


def tally(refusals: Iterable[Refusal]) -> Iterator[tuple[Refusal, int]]:
    """Each refusal with how many nodes share it: thousands of nodes in equal state share one object."""
    by_identity = {}
    nodes: Counter[int] = Counter()
    for refusal in refusals:
        by_identity[id(refusal)] = refusal
        nodes[id(refusal)] += 1
    return ((by_identity[identity], count) for identity, count in nodes.items())
