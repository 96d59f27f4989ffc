"""What a file of device families may say: the types of ``families.toml``, from which its JSON schema is made.

Amounts are the vendor's own, as pods name them; `memory_mib` and `cores_percent` are Purser's.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

import msgspec

from purser.core.model import WHOLE_PERCENT

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
ResourceName = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9][A-Za-z0-9._-]*$")]
AnnotationName = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9][A-Za-z0-9._-]*$")]
Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]

RegisteredField = Literal["id", "index", "count", "devmem", "devcore", "type", "numa", "health"]
"""HAMi's words."""

_MAX_LINKED = 64
"""More than a node has of any vendor's that are linked."""

RECORD_FIELDS = {
    "node": "the node's name",
    "seconds": "the time, in seconds since 1970",
    "nanoseconds": "the time, in nanoseconds since 1970",
    "devices": "the devices by container, in HAMi's encoding",
    "indices": "the indexes of all devices, separated by commas",
    "numbers": "the indexes of all devices; for containers that ask for numbered cores, the core numbers, counted "
    "across the node",
    "count": "the number of devices",
    "index": "the index of the first device",
    "cores": "the compute of the first device, in the unit that pods use",
    "memory": "the memory of the first device, in the unit that pods use",
    "by_container": "a JSON list with a list of devices for each container, with each device's compute and MiB",
    "minor": "the minor number of the first device",
    "slices": "the slices of the first device's profile",
    "profiles": "a JSON object with each container's profile on its device",
    "templates": "a JSON list of the devices, with each device's template and memory",
}
"""What may stand in braces in a record's value."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file."""


class MemoryResource(_Part, frozen=True):
    """The resource by which pods ask for memory of each device."""

    resource: ResourceName
    unit_mib: Number = 1
    """MiB that one of it stands for."""
    or_bytes: bool = False
    """An amount with a suffix, such as ``2048Mi``, is in bytes."""
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
    numbered: bool = False
    """It counts single cores, which have numbers: a container may name it instead of a number of devices, up to those
    of one device, or all those of several. Served where a node lists so many for each device; elsewhere devices are
    given whole alone."""


class Encoding(StrEnum):
    """How a device plugin registers a node's devices."""

    JSON = "json"
    """A list of objects."""
    COLONS = "colons"
    """HAMi's older form: fields with commas, each device ends in a colon."""
    PROFILES = "profiles"
    """Devices by index and number of slices, and the profiles into which they are divided: pods ask for a profile of
    one device, by its slices in place of a number of devices, or by memory and compute alone."""


class Register(_Part, frozen=True):
    """The node annotation in which the vendor's plugin lists devices."""

    annotation: AnnotationName
    encoding: Encoding
    id: Text = ""
    """Of `Encoding.PROFILES`, with ``{node}`` and ``{index}`` in braces: devices have none of their own."""
    fields: dict[RegisteredField, Text] = {}
    """Of `Encoding.JSON`, how the plugin names them where not as HAMi does; what is not here, it does not say."""


class CountedBy(StrEnum):
    """What of a node's capacity says the number of devices."""

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


class NodeLabel(_Part, frozen=True):
    """A label of nodes, and what is in its value."""

    name: AnnotationName
    contains: tuple[Text, ...]
    """Any of these, case aside."""

    def names(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is meant."""
        value = labels.get(self.name, "").lower()
        return any(word.lower() in value for word in self.contains)


class LinkedDevices(_Part, frozen=True):
    """Which devices a container with several gets: those that are linked with one another, by index."""

    run: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    """Runs of so many that begin at a multiple of it, as many as it takes. 0: one run of all that is asked for."""
    sets: tuple[tuple[Annotated[int, msgspec.Meta(ge=0, le=64)], ...], ...] = ()
    """These instead, each as a whole."""
    counts: tuple[Number, ...] = ()
    """How many devices can be linked so; empty: any number."""
    ring: NodeLabel | None = None
    """Nodes on which any number of neighbours is linked."""

    def groups(self, count: int) -> tuple[tuple[int, ...], ...]:
        """The groups of which a container with so many gets whole ones. The empty group alone: there is none."""
        if self.counts and count not in self.counts:
            return ((),)
        if self.sets:
            return tuple(each for each in self.sets if len(each) == count)
        run = self.run or count
        return tuple(tuple(range(first, first + run)) for first in range(0, _MAX_LINKED - run + 1, run))


class QualityOfService(_Part, frozen=True):
    """What pods say of the quality of their shares: a device has shares of one quality at a time."""

    annotation: AnnotationName
    words: tuple[Text, ...]
    """The first is that of pods that say nothing; the Binding writes it for the plugin."""


class AppClasses(_Part, frozen=True):
    """Pods of two classes that share devices with one another alone: those of the foreground displace those of the
    background there, so that their own compute is not counted, and no more of the background come."""

    annotation: AnnotationName
    foreground: Text
    background: Text


class SoftSplit(_Part, frozen=True):
    """Shares of any size, that a library on the node holds to them, in place of templates."""

    annotation: AnnotationName
    """Of pods that ask for it."""
    value: Text
    """Of this annotation."""
    cores: ResourceName
    """By which they ask for compute of each device, in percent."""
    node_annotation: AnnotationName
    """``true`` on nodes that have the library."""


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
    cores_percent: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_PERCENT)] = 0
    """Of a device's compute, that comes with it. 0: none is counted."""


class DeviceFamily(_Part, frozen=True):
    """Devices that are asked for, registered and recorded in one way."""

    name: Text
    """For people."""
    word: Text
    """HAMi's, where a list of devices names their kind."""
    vendor: Text
    resource: ResourceName
    """By which pods ask for a number of devices. The family is known by it."""
    counts: tuple[Number, ...] = ()
    """How many devices a container may have; empty: any number. One that asks for fewer than the smallest gets that."""
    linked: LinkedDevices | None = None
    """Of a container with several; None: any."""
    several_are_whole: bool = False
    """A container gets a share of one device (or of as few as one can have), or several whole ones."""
    whole_cores: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_PERCENT)] = 0
    """The compute that lists of devices have for a whole one, where pods cannot ask for compute: HAMi's scheduler goes
    by it where it takes the node back."""
    memory: MemoryResource | None = None
    cores: CoresResource | None = None
    templates: tuple[VendorTemplate, ...] = ()
    """By memory. A share is the smallest one with as much memory as the container asks for; empty: shares are of any
    size."""
    templates_up_to_mib: int = 0
    """The most that a container may ask for; what no template has is a whole device."""
    same_size_shares: bool = False
    """All shares of a device have the same memory."""
    register: Register | None = None
    capacity: CapacityDevices | None = None
    soft_split: SoftSplit | None = None
    quality: QualityOfService | None = None
    classes: AppClasses | None = None
    uuids: Lists | None = None
    second_uuids: Lists | None = None
    """A second pair: both allow a device, and neither denies it."""
    models: Lists | None = None
    lock: NodeLock | None = None
    env: dict[Text, str] = {}
    """Variables that the webhook adds to containers which ask; ``{container}`` is the container's name."""
    records: dict[AnnotationName, str] = {}
    """Annotations that the Binding brings for the vendor's plugin. In braces: `RECORD_FIELDS`."""
    several_records: dict[AnnotationName, str] = {}
    """The same, for pods with several devices alone."""
    core_records: dict[AnnotationName, str] = {}
    """The same, for pods with a container that asks for numbered cores instead of devices."""

    def is_soft(self, annotations: Mapping[str, str]) -> bool:
        """Whether a pod with these annotations asks for `SoftSplit`."""
        soft = self.soft_split
        return soft is not None and annotations.get(soft.annotation) == soft.value

    @property
    def node_annotations(self) -> tuple[str, ...]:
        """Annotations of nodes that say something of their devices."""
        register = () if self.register is None else (self.register.annotation,)
        return register if self.soft_split is None else (*register, self.soft_split.node_annotation)

    @property
    def has_profiles(self) -> bool:
        """Whether its devices are divided by profiles of their node's."""
        return self.register is not None and self.register.encoding is Encoding.PROFILES

    @property
    def node_labels(self) -> tuple[str, ...]:
        """Labels of nodes that say something of their devices."""
        ring = None if self.linked is None else self.linked.ring
        return () if ring is None else (ring.name,)

    @property
    def all_records(self) -> tuple[str, ...]:
        """Every annotation that a Binding may bring."""
        return (*self.records, *self.several_records, *self.core_records)

    @property
    def lists(self) -> tuple[Lists, ...]:
        """All annotations of pods that name devices."""
        return tuple(each for each in (self.uuids, self.second_uuids, self.models) if each is not None)

    @property
    def pod_annotations(self) -> tuple[str, ...]:
        """All annotations by which pods ask for some devices and not for others."""
        soft = () if self.soft_split is None else (self.soft_split.annotation,)
        words = tuple(each.annotation for each in (self.quality, self.classes) if each is not None)
        return (*(name for each in self.lists for name in (each.allowed, each.denied)), *soft, *words)

    @property
    def fewest(self) -> int:
        """Devices that a container can have."""
        return min(self.counts, default=1)

    @property
    def resources(self) -> tuple[str, ...]:
        """All that pods name of it."""
        parts = (part.resource for part in (self.memory, self.cores) if part is not None)
        soft = () if self.soft_split is None else (self.soft_split.cores,)
        return (self.resource, *parts, *soft)

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
