"""Why a device or node does not take a container: stable strings of metrics and logs. What pods' events say of each is
the clause that `explain` makes of it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from purser.core.fleet import rule
from purser.core.fleet.facts import CORDONED, DISPUTED, UNHEALTHY
from purser.core.kubernetes.reasons import ExplainedReason
from purser.core.model import ContainerRequest


class Reason(ExplainedReason):
    """HAMi's words, so that its users and their alerts keep reading what they know; where it has none, Purser's."""

    NOT_HEALTHY = (
        "CardNotHealth",
        "GPU",
        "The GPU is unhealthy, or no device plugin serves it at the moment.",
        "The message gives the cause. For an unhealthy GPU, see also event GpuUnhealthy on the node.",
    )
    CORDONED = (
        "GpuCordoned",
        "GPU",
        "The GPU is cordoned by `purser cordon gpu` or by HAMi's annotation on the node.",
    )
    DISPUTED = (
        "GpuHolderUnknown",
        "GPU",
        "Records disagree on which pod holds the GPU.",
        "Delete the pods that the node's condition PurserGpuDisputed names.",
    )
    TYPE_MISMATCH = (
        "CardTypeMismatch",
        "GPU",
        "The GPU is not of the kind that the container asks for: the pod's annotations exclude its model or mode, its "
        "node lists it under another resource name, it is in MIG mode and the container asks for several GPUs, or it "
        "cannot be divided as the container asks.",
        "The message says what the container asks for and what is available. Allow more models, or add a node that has "
        "an allowed model. On GPUs in MIG mode, ask for one GPU per container, or for MIG devices by name, such as "
        "nvidia.com/mig-1g.10gb.",
    )
    NUMA_NOT_FIT = (
        "NumaNotFit",
        "GPU",
        "The pod requires all its GPUs on one NUMA node, but no NUMA node has enough suitable GPUs.",
        "Remove the NUMA binding, or ask for fewer GPUs.",
    )
    NOT_LINKED = (
        "CardsNotLinked",
        "GPU",
        "Several devices of this family are allocated together only if they are linked, and no such set is free.",
        "Wait until pods on the node end, or ask for fewer devices.",
    )
    NOT_MIXED = (
        "MigDevicesNotMixed",
        "GPU",
        "The node lists MIG devices and whole GPUs under the same resource name. There are too few of either kind "
        "alone, and a container cannot get a mix of both.",
        "Ask for fewer devices, or ask the administrator to list the node's MIG devices under a separate resource "
        "name, as MIG strategy mixed does.",
    )
    UUID_MISMATCH = (
        "CardUuidMismatch",
        "GPU",
        "The pod's annotations exclude the GPU by its UUID.",
        "Change the UUIDs in the pod's annotations.",
    )
    NOT_ENFORCED = (
        "ShareNotEnforced",
        "GPU",
        "The pod requires enforcement, but nothing enforces the limits of its share on the GPU.",
        "Make the node enforce shares, or ask for whole GPUs. See docs/enforcement.md.",
    )
    SLOTS_EXHAUSTED = (
        "CardTimeSlicingExhausted",
        "GPU",
        "All slots of the GPU are in use.",
        "Wait until a pod on the GPU ends. If agent.slots sets the GPU's number of slots, you can raise it.",
    )
    EXCLUSIVE_CONFLICT = (
        "ExclusiveDeviceAllocateConflict",
        "GPU",
        "Other pods use the GPU, but the pod requires exclusive use, or an idle GPU because of policy mutex; or "
        "another pod has exclusive use.",
        "Wait until these pods end.",
    )
    QUOTA_NOT_FIT = (
        "ResourceQuotaNotFit",
        "GPU",
        "The pod would exceed its namespace's ResourceQuota on this GPU.",
        "Raise the quota, or ask for less.",
    )
    INSUFFICIENT_MEMORY = (
        "CardInsufficientMemory",
        "GPU",
        "Too little of the GPU's memory is free.",
        "Ask for less memory, or wait if a GPU has enough memory in total.",
    )
    INSUFFICIENT_CORES = (
        "CardInsufficientCore",
        "GPU",
        "Too little of the GPU's compute is free.",
        "Ask for fewer cores, or wait.",
    )
    CORES_EXHAUSTED = (
        "CardComputeUnitsExhausted",
        "GPU",
        "All of the GPU's compute is allocated, so a pod that does not specify cores cannot share the GPU.",
        "Wait until a pod on the GPU ends.",
    )
    NO_MIG_PLACE = (
        "MigPlaceNotFound",
        "GPU",
        "The GPU is partitioned on demand, but has no room for another GPU instance of the pod's profile.",
        "Ask for a smaller profile, or wait until other instances are deleted.",
    )
    SHARES_DIFFER = (
        "CardSharesDiffer",
        "GPU",
        "The device supports only shares whose size, quality of service or kind of sharing is compatible with the "
        "shares that pods already hold.",
        "Wait until these pods end, or ask for a compatible share.",
    )
    TOO_FEW_GPUS = (
        "AllocatedCardsInsufficientRequest",
        "GPU",
        "The GPU is suitable, but the node has too few suitable GPUs for the container.",
        "Ask for fewer GPUs per container, or wait.",
    )
    NO_DEVICES = (
        "NodeInsufficientDevice",
        "Node",
        "The node's inventory has no GPUs.",
        "Check the log of Purser's agent on the node, or of the device plugin that serves the node's GPUs.",
    )
    UNREGISTERED = (
        "node unregistered",
        "Node",
        "The node has no inventory: no agent runs on it, or the agent has not written one.",
        "Check whether Purser's agent, or the device plugin that serves the node's GPUs, runs on the node, and check "
        "its log.",
    )
    KUBELET_WOULD_REJECT = (
        "KubeletWouldReject",
        "Node",
        "The GPUs are suitable, but the node's kubelet would reject the pod, for example because of its topology "
        "manager policy.",
        "The message has the details; see docs/kubelet.md.",
    )
    KUBELET_ADMISSION_PENDING = (
        "KubeletAdmissionPending",
        "Node",
        "Purser cannot predict kubelet's admission until recently bound pods have been admitted.",
    )
    TOO_FEW_PAIRS = (
        "GpuNicPairsNotFound",
        "Node",
        "The pod requires its GPUs and network devices under the same PCIe switches, but the node has too few such "
        "pairs.",
        "Wait until pods on the node end, ask for fewer devices, or set annotation purser.dev/gpu-nic to preferred.",
    )
    NO_POOL = (
        "GpuNicPoolNotFound",
        "Node",
        "The pod requires its GPUs and network devices under the same PCIe switches, but the node has none of the "
        "SR-IOV pools that the pod asks for.",
        "In the pod's limits, ask for a pool that nodes with GPUs have, or configure the pool on the node; see "
        "docs/sriov.md.",
    )
    NOMINATED = (
        "NodeNominated",
        "Node",
        "The free GPUs are reserved for pods of the same or higher priority that are nominated to the node.",
    )


OF_OBSTACLE: dict[int, Reason] = {
    UNHEALTHY: Reason.NOT_HEALTHY,
    CORDONED: Reason.CORDONED,
    DISPUTED: Reason.DISPUTED,
    rule.OTHER_MODEL: Reason.TYPE_MISMATCH,
    rule.OTHER_UUID: Reason.UUID_MISMATCH,
    rule.UNENFORCED: Reason.NOT_ENFORCED,
    rule.NO_SLOT: Reason.SLOTS_EXHAUSTED,
    rule.NOT_IDLE: Reason.EXCLUSIVE_CONFLICT,
    rule.OVER_QUOTA: Reason.QUOTA_NOT_FIT,
    rule.SHORT_OF_MEMORY: Reason.INSUFFICIENT_MEMORY,
    rule.SHORT_OF_CORES: Reason.INSUFFICIENT_CORES,
    rule.NO_COMPUTE: Reason.CORES_EXHAUSTED,
    rule.NOT_ALONE: Reason.EXCLUSIVE_CONFLICT,
    rule.NO_MIG_PLACEMENT: Reason.NO_MIG_PLACE,
    rule.UNLIKE_OTHERS: Reason.SHARES_DIFFER,
}
"""By obstacle, in the order in which they are given as reasons; of a GPU that is ``ABSENT`` nothing is said."""


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
    memory_largest_mib: int = 0
    """The most that any of these has in all."""
    cores_needed_percent: int = 0
    cores_free_percent: int = 0
    count_needed: int = 0
    detail: str = ""
    """What kubelet would say, where it is kubelet that would refuse."""
    dispute: str = ""
    """Who is in the way, where a GPU is disputed. It names pods of any namespace, so it is for operators only: no
    message to a pod has it."""

    @property
    def message(self) -> str:
        """HAMi's form: ``7/8 CardInsufficientMemory, 1/8 CardNotHealth`` or the reason of the node as a whole. The
        owner of the pod may read it."""
        return self._message(self.detail)

    @property
    def message_to_operators(self) -> str:
        """The same, with the pods that are in the way where a GPU is disputed."""
        return self._message(self.dispute or self.detail)

    def _message(self, detail: str) -> str:
        if not self.devices:
            reasons = ", ".join(reason for reason, _ in self.counts)
            return f"{reasons}: {detail}" if detail else reasons
        counted = ", ".join(sorted(f"{count}/{self.devices} {reason}" for reason, count in self.counts))
        return f"{counted} ({detail})" if detail else counted


class LargestFree(NamedTuple):
    """Of a node's devices that have too little for a container: the most that any has free, and the most in all."""

    memory_mib: int = 0
    memory_largest_mib: int = 0
    cores_percent: int = 0


def build_refusal(
    container: ContainerRequest,
    devices: int,
    obstacles: Mapping[Reason, int],
    for_rest: Reason | None,
    most: LargestFree,
    detail: str = "",
    resolvable: bool = False,
    dispute: str = "",
) -> Refusal:
    """The refusal of a container by a node with so many devices.

    ``obstacles``: how many devices have each of these reasons first. ``for_rest`` is held against those that suit,
    because they are too few or on too many NUMA nodes.
    """
    if not devices:
        return Refusal(((Reason.NO_DEVICES, 1),), container=container.name)
    counts = {reason: count for reason, count in obstacles.items() if count}
    suitable = devices - sum(counts.values())
    if for_rest is not None and suitable:
        counts[for_rest] = suitable
    asked = container.devices
    needed = rule.memory_asked(most.memory_largest_mib, asked.memory_mib or 0, asked.memory_percent or 0)
    is_short, is_slow = Reason.INSUFFICIENT_MEMORY in counts, Reason.INSUFFICIENT_CORES in counts
    return Refusal(
        counts=tuple(sorted(counts.items())),
        devices=devices,
        container=container.name,
        resolvable=resolvable,
        memory_needed_mib=needed if is_short else 0,
        memory_free_mib=most.memory_mib,
        memory_largest_mib=most.memory_largest_mib,
        cores_needed_percent=asked.cores_percent if is_slow else 0,
        cores_free_percent=most.cores_percent,
        count_needed=asked.count,
        detail=detail,
        dispute=dispute,
    )


def dispute_detail(uuid: str, why: str) -> str:
    """Such as ``GPU GPU-... is disputed: pod ns/name holds it without a valid grant``."""
    return f"GPU {uuid} is disputed: {why}"


OTHER_INSTANCES_CLAUSE = "in addition to what the pod's other containers get there"
"""Init containers' instances stay as long as the pod."""

PROMISED_REFUSAL = Refusal(((Reason.NOMINATED, 1),), resolvable=True)
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


def nodes_by_reason(refusals: Iterable[Refusal]) -> "Counter[str]":
    """Of how many nodes each reason was found; a node can have several."""
    found: Counter[str] = Counter()
    for refusal, nodes in tally(refusals):
        found.update({reason: nodes for reason, _ in refusal.counts})
    return found
