"""kubelet's calls to a device plugin, and what a container gets, as values. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from purser.core.device.answers import are_granted_devices, preferred_ids
from purser.core.model import ContainerGrant
from purser.core.names import GPU_RESOURCE
from purser.core.wording import counted


class PreferredAllocationCall(msgspec.Struct, frozen=True):
    """What kubelet asks in GetPreferredAllocation."""

    size: int
    available: tuple[str, ...]
    must_include: tuple[str, ...] = ()

    def fits(self, part: ContainerGrant) -> bool:
        """Whether the container's grant can be met out of these ids."""
        return self._preferred_ids(part) is not None

    def answer(self, part: ContainerGrant, held: Collection[str] = ()) -> tuple[str, ...]:
        """The ids for a container that fits; ValueError for another. ``held``: see `preferred_ids`."""
        preferred = self._preferred_ids(part, held)
        if preferred is None:
            raise ValueError(f"container {part.container} ({', '.join(part.uuids)}) cannot get {self}")
        return preferred

    def _preferred_ids(self, part: ContainerGrant, held: Collection[str] = ()) -> tuple[str, ...] | None:
        return preferred_ids(part.uuids, self.size, self.available, self.must_include, held)

    def __str__(self) -> str:
        required = f", including {', '.join(self.must_include)}" if self.must_include else ""
        return f"{self.size} of {counted(len(self.available), 'free ID')}{required}"


class AllocateCall(msgspec.Struct, frozen=True):
    """What kubelet says in Allocate: it has taken these ids."""

    ids: tuple[str, ...]
    resource: str = GPU_RESOURCE

    def fits(self, part: ContainerGrant) -> bool:
        """Whether the ids are on exactly the granted devices, one each."""
        return are_granted_devices(part.uuids, self.ids)

    def __str__(self) -> str:
        return f"IDs {', '.join(self.ids)}"


class Mount(msgspec.Struct, frozen=True):
    """A host path in a container."""

    container_path: str
    host_path: str
    read_only: bool = True


class ContainerAllocation(msgspec.Struct, frozen=True):
    """Environment, mounts, device files and CDI devices of one container."""

    environment: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[Mount, ...] = ()
    """To read and write."""
    annotations: Mapping[str, str] = {}
    """For the container runtime."""
    cdi_devices: tuple[str, ...] = ()
    """Full names, as ``k8s.device-plugin.nvidia.com/gpu=GPU-...``."""
