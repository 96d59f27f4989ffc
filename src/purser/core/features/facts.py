"""What the labels of a node are made of: its GPUs, driver and machine, and how its GPUs are shared."""

from collections.abc import Mapping

import msgspec

from purser.core.device.gpus import NodeGpu
from purser.core.sharing import MigStrategy, PluginFile, SharingStrategy, active


class Replication(msgspec.Struct, frozen=True):
    """A resource of which each device is handed out several times."""

    replicas: int
    is_renamed: bool = False
    """Replicas have a name of their own, such as nvidia.com/gpu.shared."""


class NodeSharing(msgspec.Struct, frozen=True):
    """What is handed out several times. Shares of a GPU's memory are not replicas."""

    kind: SharingStrategy = SharingStrategy.NONE
    resources: Mapping[str, Replication] = {}
    """By resource, such as nvidia.com/gpu."""

    @property
    def strategy(self) -> SharingStrategy:
        """What is at work: a single replica of everything shares nothing."""
        is_shared = any(each.replicas > 1 for each in self.resources.values())
        return self.kind if is_shared else SharingStrategy.NONE


def sharing_of(file: PluginFile) -> NodeSharing:
    """The device plugin's file on this resource. Of two entries for one resource the first is reported; so is an entry
    that replicates only some of its devices."""
    kind, replicas = active(file.sharing)
    resources: dict[str, Replication] = {}
    if replicas is not None:
        for entry in replicas.resources:
            is_renamed = replicas.advertised_as(entry) != entry.name
            resources.setdefault(entry.name, Replication(entry.replicas, is_renamed))
    return NodeSharing(kind, resources)


class LabelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    gpus: tuple[NodeGpu, ...] = ()
    driver_version: str = ""
    cuda_version: str = ""
    """Newest that the driver supports: ``12.4``."""
    machine: str = ""
    """The machine's product name; empty: not known."""
    mig_strategy: MigStrategy = MigStrategy.NONE
    sharing: NodeSharing = NodeSharing()
    pci_configs: tuple[bytes, ...] = ()
    """PCI configuration spaces of NVIDIA's devices, each empty where it cannot be read."""
    timestamp: int | None = None
    """The label's value, Unix time in seconds; None: no such label."""
