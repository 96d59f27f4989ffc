"""What a file of device families may say: the types of ``families.toml``, from which its JSON schema is made.

Amounts are the vendor's own, as pods name them; `memory_mib` and `cores_percent` are Purser's.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from purser.core.model import WHOLE_PERCENT

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
ResourceName = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9][A-Za-z0-9._-]*$")]
AnnotationName = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9][A-Za-z0-9._-]*$")]
Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]

RECORD_FIELDS = {
    "node": "the node's name",
    "seconds": "the time, in seconds since 1970",
    "nanoseconds": "the same in nanoseconds",
    "devices": "the devices by container, as HAMi encodes them",
    "indices": "the indexes of all devices, with commas",
    "count": "how many devices there are",
    "index": "the index of the first device",
    "cores": "the compute of the first device, as pods name it",
    "memory": "the memory of the first device, as pods name it",
    "templates": "a JSON list of the devices with the template and the memory of each",
}
"""What may stand in braces in a record's value."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file."""


class MemoryResource(_Part, frozen=True):
    """The resource by which pods ask for memory of each device."""

    resource: ResourceName
    unit_mib: Number = 1
    """MiB that one of it stands for."""
    allowed: tuple[Number, ...] = ()
    """The amounts that the vendor's plugin can serve; empty: any."""
    whole: int = 0
    """What a container must name for a whole device, so that kubelet calls the plugin. 0: nothing."""


class CoresResource(_Part, frozen=True):
    """The resource by which pods ask for compute of each device."""

    resource: ResourceName
    per_device: Number = WHOLE_PERCENT
    """How much of it a whole device has."""
    unset: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_PERCENT)] = 0
    """Percent of each device that count where a container names none: 0 nothing, 100 the device alone."""
    of_several: Annotated[int, msgspec.Meta(ge=0)] = 0
    """What a container with several devices must name for each, in sum; the webhook adds it. 0: what it likes."""
    whole: int = 0
    """As `MemoryResource.whole`."""


class Encoding(StrEnum):
    """How a device plugin registers a node's devices."""

    JSON = "json"
    """A list of objects."""
    COLONS = "colons"
    """HAMi's older form: fields with commas, each device ends in a colon."""


class Register(_Part, frozen=True):
    """The node annotation in which the vendor's plugin lists devices."""

    annotation: AnnotationName
    encoding: Encoding


class CountedBy(StrEnum):
    """What of a node's capacity says how many devices there are."""

    DEVICES = "devices"
    """The family's resource: one for each device."""
    CORES = "cores"
    """The resource of compute: so much of it for each device."""


class CapacityDevices(_Part, frozen=True):
    """Devices that follow from what the node lists, for plugins that register none."""

    id: Text
    """With ``{node}`` and ``{index}`` in braces."""
    counted_by: CountedBy
    slots: Number = 1
    memory_mib: int = 0
    """Of each device. 0: the node lists the memory of all of them together."""


class Lists(_Part, frozen=True):
    """Annotations of pods that name devices, with commas between them."""

    allowed: AnnotationName
    denied: AnnotationName


class NodeLock(_Part, frozen=True):
    """The node annotation by which the plugin finds the pod whose devices kubelet asks for, so that pods come one by
    one; the plugin removes it."""

    annotation: AnnotationName
    seconds: Number
    """After which a lock that was left counts no more."""
    names_pod: bool = True
    """Whether namespace and name of the pod stand behind the time."""


class VendorTemplate(_Part, frozen=True):
    """A size into which the vendor's driver divides a device."""

    name: Text
    memory_mib: Number


class DeviceFamily(_Part, frozen=True):
    """Devices that are asked for, registered and recorded in one way."""

    name: Text
    """For people."""
    word: Text
    """HAMi's, where a list of devices names their kind."""
    vendor: Text
    resource: ResourceName
    """By which pods ask for a number of devices. The family is known by it."""
    several_are_whole: bool = False
    """A container gets a share of one device, or several whole ones."""
    unserved: tuple[ResourceName, ...] = ()
    """Resources of the family that Purser does not serve."""
    memory: MemoryResource | None = None
    cores: CoresResource | None = None
    templates: tuple[VendorTemplate, ...] = ()
    """By memory. A share is the smallest one with as much memory as the container asks for; empty: shares are of any
    size."""
    templates_up_to_mib: int = 0
    """The most that a container may ask for; what no template has is a whole device."""
    register: Register | None = None
    capacity: CapacityDevices | None = None
    uuids: Lists | None = None
    models: Lists | None = None
    lock: NodeLock | None = None
    env: dict[Text, str] = {}
    """Variables that the webhook adds to containers which ask; ``{container}`` is the container's name."""
    records: dict[AnnotationName, str] = {}
    """Annotations that the Binding brings for the vendor's plugin. In braces: `RECORD_FIELDS`."""
    several_records: dict[AnnotationName, str] = {}
    """The same, for pods with several devices alone."""

    @property
    def resources(self) -> tuple[str, ...]:
        """All that pods name of it."""
        parts = (part.resource for part in (self.memory, self.cores) if part is not None)
        return (self.resource, *parts, *self.unserved)

    def memory_unit_mib(self) -> int:
        """MiB that one of its memory's resource stands for."""
        return 1 if self.memory is None else self.memory.unit_mib

    def cores_of(self, percent: int) -> int:
        """So much of a device's compute as pods name it, rounded up: what was asked for comes back as it was."""
        return percent if self.cores is None else -(-percent * self.cores.per_device // WHOLE_PERCENT)

    def template_for(self, memory_mib: int) -> VendorTemplate | None:
        """The smallest template with so much memory; None: it takes a whole device."""
        return next((each for each in self.templates if memory_mib <= each.memory_mib), None)


class CommonParts(_Part, frozen=True):
    """What all families share."""

    records: dict[AnnotationName, str] = {}


class FamilyFile(_Part, frozen=True):
    """The whole file."""

    common: CommonParts
    families: tuple[DeviceFamily, ...]
