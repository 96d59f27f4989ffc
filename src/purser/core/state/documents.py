"""Types of the state document, version ``v1``.

Within a version fields are added and never change their meaning, name or type; readers pass over what they do not know.
Anything else is another version, under another path.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from purser.core.node.maintenance import has_failed, maintenance_words
from purser.core.pod.manifest import ContainerKind

STATE_VERSION = "v1"

ADVICE = "; there is room if "
"""In what kube-scheduler is told of a pod, between why it is refused and the change by which it would fit."""


class StateGpuHealth(StrEnum):
    """Whether a GPU takes new pods; of several that hold the first."""

    UNHEALTHY = "Unhealthy"
    """Its node says that it is ill: see docs/health.md."""
    CORDONED = "Cordoned"
    """People closed it."""
    DISPUTED = "Disputed"
    """Records of who holds it differ."""
    HEALTHY = "Healthy"


class StateGpu(msgspec.Struct, frozen=True, gc=False):
    """A GPU, a MIG device or another vendor's device, and how much of it pods hold."""

    uuid: str
    index: int
    """The driver's, for people; -1: not known."""
    model: str
    mode: str
    """``shared``, ``whole``, ``mig``: see `purser.core.device.modes.DeviceMode`."""
    resource: str
    """Of kubelet, under which it is listed."""
    parent: str
    """uuid of its GPU, of a MIG device."""
    health: StateGpuHealth
    reason: str
    """Why it takes no new pods, in a sentence; empty: nobody says, or it takes them."""
    cordoned: bool
    enforcement: str
    """What holds shares of it to their limits."""
    slots: int
    """How many containers may hold a share at once."""
    slots_held: int
    memory_mib: int
    """0: not known, of GPUs that use the machine's memory."""
    memory_held_mib: int
    cores_percent: int
    cores_held_percent: int
    pods: int
    """How many hold any of it."""
    pci_bus_id: str = ""
    """Empty: not known."""
    numa_nodes: tuple[int, ...] = ()
    """Empty: not known."""
    instances: tuple[str, ...] = ()
    """GPU instances, ``1g.5gb at 3``, on a GPU that is cut on demand; in brackets those that no grant made."""
    degraded_reason: str = ""
    """What is wrong with it, in a sentence, although it takes new pods; empty: nothing is known to be."""

    @property
    def is_degraded(self) -> bool:
        """Whether it takes new pods and has a problem."""
        return bool(self.degraded_reason) and self.health is StateGpuHealth.HEALTHY


class StateCutGpu(msgspec.Struct, frozen=True, gc=False):
    """A GPU in MIG mode: pods get the MIG devices that are listed beside it, if there are any, and not the GPU."""

    uuid: str
    index: int
    """The driver's, for people; -1: not known."""
    model: str
    memory_mib: int
    """Of the whole GPU."""


class StateNode(msgspec.Struct, frozen=True):
    """A node that has an inventory."""

    name: str
    cordoned: bool
    """Unschedulable: the node as a whole takes no new pods."""
    driver_version: str
    agent_version: str
    gpus: tuple[StateGpu, ...]
    topology: Mapping[str, str] = {}
    """Its labels that say where it is: zone, rack, block, NVLink domain."""
    cordoned_by: str = ""
    """``driver-upgrade`` or ``mig-change``: the work for which the operator cordoned it, and after which it uncordons
    it; empty: people cordoned it, or nobody did."""
    upgrade: str = ""
    """State of its driver upgrade (docs/driver-upgrades.md); empty: none is to come."""
    mig_state: str = ""
    """State of its MIG layout: ``pending``, ``success`` or ``failed``; empty: no layout was asked for."""
    ready: str = ""
    """Whether kubelet is: ``Ready``, ``NotReady`` or ``Unknown``, as `kubectl get nodes` has it; empty: not told."""
    cut_gpus: tuple[StateCutGpu, ...] = ()
    """Its GPUs in MIG mode that are no ``gpus`` themselves."""

    @property
    def maintenance(self) -> str:
        """What the operator does to it, in words; empty: nothing."""
        return maintenance_words(self.cordoned_by, self.upgrade, self.mig_state)

    def health_of(self, gpu: StateGpu) -> StateGpuHealth:
        """A GPU's health as people count it: a healthy GPU of a cordoned node takes no new pods either."""
        is_closed = self.cordoned and gpu.health is StateGpuHealth.HEALTHY
        return StateGpuHealth.CORDONED if is_closed else gpu.health

    @property
    def comes_back(self) -> bool:
        """Whether it is cordoned for work of the operator, and takes pods again when that is done."""
        return bool(self.cordoned_by) and not has_failed(self.cordoned_by, self.upgrade, self.mig_state)


class StateShare(msgspec.Struct, frozen=True, gc=False):
    """What a container holds of one GPU."""

    gpu: str
    """uuid."""
    index: int
    """The driver's, for people; -1: its node does not list the GPU any more."""
    memory_mib: int
    cores_percent: int
    """0: compute is not limited."""
    mig: str
    """The GPU instance, ``1g.5gb at 3``, on a GPU that is cut on demand."""


class StateContainer(msgspec.Struct, frozen=True):
    """What one container of a pod holds."""

    name: str
    kind: ContainerKind
    """When it runs: what an init container has of a GPU counts once with what an app has of it afterwards."""
    enforcement: str
    """What holds it to its shares."""
    shares: tuple[StateShare, ...]


class StateGrant(msgspec.Struct, frozen=True):
    """A pod that holds GPUs."""

    namespace: str
    pod: str
    uid: str
    node: str
    state: str
    """`purser.core.model.GrantState`."""
    containers: tuple[StateContainer, ...]
    created: str = ""
    """When the pod was created, RFC 3339; empty: not known."""
    started: str = ""
    """When kubelet took the pod, by its node's clock; empty: it has not, or that is not known."""


class StateReason(msgspec.Struct, frozen=True, gc=False):
    """One reason why nodes do not take a pod, and for how many it holds."""

    by: str
    """Who refuses: ``kube-scheduler`` or ``Purser``."""
    reason: str
    """The word: see docs/reasons.md."""
    nodes: int
    gpus: int
    """0: it is about nodes as a whole, or not counted."""
    text: str
    """In a sentence; empty: only the number is known."""


class StateAsk(msgspec.Struct, frozen=True, gc=False):
    """What a pod asks for of each of its GPUs. Of several containers the one that asks for most counts."""

    resource: str
    """Of kubelet, under which the GPUs are listed."""
    whole: bool
    """Whether it asks for them alone; else `memory_mib` or `memory_percent` is set."""
    memory_mib: int = 0
    memory_percent: int = 0
    """Of the memory of whichever GPU it gets."""


class StateWaiting(msgspec.Struct, frozen=True):
    """A pod that asks for GPUs and is on no node."""

    namespace: str
    pod: str
    uid: str
    since: str
    """When it was created, RFC 3339; empty: not known."""
    scheduler: str
    priority: int
    gpus: int
    """GPUs that it has at once at most, a share counted as one; 0: the request cannot be read."""
    reason: str
    """The word of what most nodes lack; empty: nothing is known, or `message` alone says it."""
    message: str
    """In a sentence; empty: nothing is known."""
    reasons: tuple[StateReason, ...] = ()
    """All of them, those of most nodes first, where they are known."""
    suggestion: str = ""
    """By which change of its own the pod fitted when the scheduler last tried some, as what follows an *if*; `message`
    may end with it as well. Empty: none is known."""
    asks: StateAsk | None = None
    """None: the request cannot be read, or is for GPUs of several kinds or for such as have no size of their own."""


class StateQuota(msgspec.Struct, frozen=True, gc=False):
    """A limit of a namespace's ResourceQuota that Purser keeps: over memory or compute of devices."""

    namespace: str
    quota: str
    """Name of the ResourceQuota."""
    resource: str
    """As its ``spec.hard`` names it: ``limits.nvidia.com/gpumem``. Amounts are in the units that it has there."""
    family: str
    """Of other vendors' devices, the resource that their family is known by; empty: NVIDIA's."""
    held: int
    """By all pods of the namespace; it may be more than the limit, which can be lowered."""
    limit: int


class StateReplica(msgspec.Struct, frozen=True):
    """The replica of the scheduler that answered."""

    name: str
    """Its pod; empty in a document of one namespace."""
    places_pods: bool
    """Whether it is the one that does: only that one knows why pods wait."""
    leader: str
    """Who holds kube-scheduler's Lease; empty: nobody, there is one replica, or the document is of one namespace."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What readers of its answer have to know."""
        if self.places_pods:
            return ()
        if not self.name:
            return ("this replica of the scheduler does not place pods, so it does not know why they wait",)
        if self.name == self.leader:
            return (f"{self.name} has just become the leader, and does not place pods or know why they wait yet",)
        return (
            f"{self.name} is not the leader, so it does not place pods or know why they wait; the leader is "
            f"{self.leader or 'unknown'}",
        )


class ClusterState(msgspec.Struct, frozen=True):
    """Nodes, what pods hold of their GPUs, and which pods wait."""

    instance: str
    """Of the process that counts `sequence`."""
    sequence: int
    """Greater whenever anything below is not as it was in the answer before."""
    replica: StateReplica | None
    """None: read from the API server's objects, by no scheduler."""
    nodes: tuple[StateNode, ...]
    grants: tuple[StateGrant, ...]
    waiting: tuple[StateWaiting, ...]
    notes: tuple[str, ...] = ()
    """What could not be read, or is not told."""
    quotas: tuple[StateQuota, ...] = ()
    """By namespace, name and resource."""
    api_version: str = STATE_VERSION
