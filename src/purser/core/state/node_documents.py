"""Types of the document on one node: what is too much to say of every node of a fleet.

They belong to version ``v1``, and change as the types in ``documents`` may. Nothing in them names a pod.
"""

import msgspec

from purser.core.model import PcieLevel
from purser.core.state.documents import STATE_VERSION

MAX_LINKED_GPUS = 32
"""GPUs of a node between which links are listed: more are no node's, but of other vendors' divided cards."""


class StateLink(msgspec.Struct, frozen=True, gc=False):
    """What connects a GPU with another one of its node."""

    peer: str
    """uuid."""
    level: PcieLevel | None
    """How far apart they are on PCIe, or else by their NUMA nodes; null: not known."""
    nvlinks: int
    """Active NVLinks between the two, through an NVSwitch as well."""
    nvlinks_differ: bool
    """Whether the two GPUs report different numbers of NVLinks: then none counts."""


class StateNodeGpu(msgspec.Struct, frozen=True):
    """Where a GPU is in its node."""

    uuid: str
    index: int
    """The driver's, for people."""
    pci_bus_id: str
    """Empty: not known."""
    numa_nodes: tuple[int, ...]
    """Empty: not known."""
    links: tuple[StateLink, ...]
    """To each other GPU of the first 32 that are listed here; empty: it is none of these."""


class StatePoolPlace(msgspec.Struct, frozen=True):
    """Devices of one SR-IOV pool that are under the same PCIe switch of a node."""

    resource: str
    """Of kubelet, under which the pool is listed."""
    place: str
    """The nearest switch by its PCI address; ``numa-0`` of devices below none; empty: not known."""
    numa_node: int | None
    """null: not known."""
    devices: int
    """Those that take pods."""
    held: int
    """How many of these pods hold."""
    levels: tuple[PcieLevel | None, ...]
    """How far they are from each of the document's GPUs, in their order; null: not known."""


class StateKubeletResource(msgspec.Struct, frozen=True):
    """Devices of one resource, as kubelet knows them: of a shared GPU each slot is one."""

    resource: str
    listed: int
    healthy: int
    held: int
    """Those that kubelet has given to containers."""
    numa_nodes: tuple[int, ...]
    """That kubelet was told of; empty: it was told of none, and aligns nothing with these devices."""


class StateKubelet(msgspec.Struct, frozen=True):
    """What a node's kubelet last reported."""

    version: str
    source: str
    """Who reported it: ``agent``, or ``NodeResourceTopology``."""
    topology_policy: str
    """topologyManagerPolicy."""
    topology_scope: str
    cpu_policy: str
    memory_policy: str
    resources: tuple[StateKubeletResource, ...]


class NodeDetails(msgspec.Struct, frozen=True):
    """One node: how its GPUs are connected, which network devices are near them, and what its kubelet reports."""

    name: str
    gpus: tuple[StateNodeGpu, ...]
    """By index. MIG devices are left out."""
    pools: tuple[StatePoolPlace, ...]
    kubelet: StateKubelet | None
    """null: nobody reports it, it rejects no pod that has room, or the reader may not know of the whole node."""
    api_version: str = STATE_VERSION
