"""A node's GPUs as their driver reports them. kubelet's devices and the node's labels are made from them."""

import msgspec


class NodeMigDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG device of a GPU."""

    uuid: str = ""
    profile: str
    """As NVML and nvidia-smi have it: ``1g.10gb+me``; of one that shares its GPU instance ``1c.2g.10gb``."""
    memory_mib: int
    gi_slices: int = 0
    """Compute slices of its GPU instance."""
    ci_slices: int = 0
    multiprocessors: int = 0
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0
    gpu_instance: int = 0
    """NVML's number of it, on its GPU."""
    compute_instance: int = 0
    """The same, in its GPU instance."""


class FabricIds(msgspec.Struct, frozen=True):
    """Which NVLink domain a GPU has joined."""

    cluster_uuid: str
    clique: int


class NodeGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, whole or cut by MIG."""

    uuid: str = ""
    index: int = 0
    """NVML's."""
    model: str
    """NVML's name of it."""
    memory_mib: int = 0
    compute_capability: tuple[int, int] | None = None
    can_mig: bool = False
    mig_enabled: bool = False
    migs: tuple[NodeMigDevice, ...] = ()
    """By their indexes."""
    mig_kind: str = ""
    """The `purser.core.mig.MigKind` of GPUs of its model, by name; empty: they cannot MIG, or are not known."""
    pci_class: int | None = None
    """With subclass and interface: 0x030200. None: not known."""
    fabric: FabricIds | None = None
    """None: it has joined none."""
