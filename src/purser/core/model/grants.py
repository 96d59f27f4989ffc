"""What a pod holds: shares of devices, from reservation to release."""

from enum import StrEnum
from typing import Annotated

import msgspec

from purser.core.model.inventory import WHOLE_PERCENT, Amount, Enforcement, MigPlacement
from purser.core.pod.manifest import ContainerKind


class DeviceShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of one device: what one container holds of it."""

    uuid: str
    memory_mib: Amount
    cores_percent: Amount
    """0: not limited, and not counted against the device."""
    mig: MigPlacement | None = None
    """The GPU instance, on a GPU that is cut on demand; amounts are then the instance's."""
    family: str = ""
    """Of another vendor's device, the resource that its family is known by: quotas are by family."""
    alike: str = ""
    """See `DeviceRequest.alike`."""
    core_numbers: Annotated[tuple[int, ...], msgspec.Meta(max_length=64)] = ()
    """Of a device whose cores have numbers (`Device.cores`), those it has."""
    profile: str = ""
    """Of a device that is divided by profiles (`Device.slicing`), the name of the one it has."""

    @property
    def is_whole(self) -> bool:
        """Whether the container has the device alone."""
        return self.cores_percent >= WHOLE_PERCENT


class ContainerGrant(msgspec.Struct, frozen=True):
    """What one container of a pod holds: one share on each of its devices."""

    container: str
    kind: ContainerKind
    shares: tuple[DeviceShare, ...]
    enforcement: Enforcement = Enforcement.NONE

    @property
    def uuids(self) -> tuple[str, ...]:
        """The device of each share, in the order in which the container sees them; a device of which it has two parts
        appears twice."""
        return tuple(share.uuid for share in self.shares)

    @property
    def is_whole(self) -> bool:
        """Whether the container has its devices alone."""
        return all(share.is_whole for share in self.shares)


class PoolShare(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """From where a container gets devices of an SR-IOV pool."""

    container: str
    resource: str
    place: str
    """`PoolPlace.id`."""
    count: Amount


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one pod holds on one node: the content of the grant annotation."""

    pod_uid: str
    namespace: str
    pod: str
    node: str
    containers: tuple[ContainerGrant, ...]
    enforcement_required: bool = False
    """Whether no container may start whose share nothing holds to its limits."""
    pools: tuple[PoolShare, ...] = ()
    """Of containers with GPUs, the devices of SR-IOV pools that they get beside these."""
    pairs_required: bool = False
    """Whether no container may start whose GPUs and network devices are not below the same switches, as far as it has
    both."""

    @property
    def key(self) -> str:
        """The pod, as informers key it."""
        return f"{self.namespace}/{self.pod}"

    @property
    def family(self) -> str:
        """See `DeviceShare.family`: a pod has devices of one; empty: NVIDIA's."""
        return next((share.family for part in self.containers for share in part.shares), "")

    @property
    def uuids(self) -> frozenset[str]:
        """All devices that it is about."""
        return frozenset(uuid for part in self.containers for uuid in part.uuids)

    def of(self, container: str) -> ContainerGrant | None:
        """The part of the container with this name."""
        return next((part for part in self.containers if part.container == container), None)


class GrantState(StrEnum):
    """How far a grant has come, from the scheduler's decision to the pod's end."""

    RESERVED = "reserved"
    BOUND = "bound"
    ALLOCATED = "allocated"
    RUNNING = "running"
    RELEASED = "released"
