"""The configuration file of NVIDIA's device plugin, ``version: v1``, read as the plugin reads it.

Source: api/config/v1 of k8s-device-plugin. A key that it does not know is passed over, a key of the upper levels may be
written in any case, and null there means that nothing is said; within a way of sharing and in patterns null is an
error. Of three thousand files with mistakes in them a mistake was found in all but twenty of those that the package
refuses; it alone refuses a ``sleepInterval`` that is no duration and ``timeSlicing: null``, and takes a null in a list
for 0.

Where that package refuses the whole file, a mistake here costs the entry in which it stands: a resource of a way of
sharing, a pattern, a flag. Only of a text that is not an object, or of another version, nothing is taken.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec.inspect import type_info

from purser.core.decoding import UnreadableError, brief
from purser.core.device.ids import MAX_SLOTS
from purser.core.device.resources import SHARED_SUFFIX
from purser.core.go_json import normalise_keys
from purser.core.kubernetes.naming import is_subdomain
from purser.core.salvaging import cap_sentences, mistake_sentence, salvage

FILE = "the device plugin's file"
"""What errors call it."""

PREFIX = "nvidia.com/"
MAX_RESOURCE_NAME = 63
"""Characters, with the prefix."""
MAX_NOTES = 20
"""Unknown keys that are named at most."""

_DEVICE_FORM = "an index (0, or 0:1 for a MIG device) or a UUID"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DEVICE = re.compile(rf"[0-9]+|[0-9]+:[0-9]+|(?:GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+", re.ASCII | re.I)


class SharingError(ValueError):
    """What the file, an option or a variable says cannot be; the message says where it stands, and why."""


def resource_name(written: str) -> str:
    """A kubelet resource as the file means it: under ``nvidia.com/`` whether that is written or not.

    Raises ValueError for what Kubernetes would not take as a name.
    """
    name = written if written.startswith(PREFIX) else PREFIX + written
    if len(name) > MAX_RESOURCE_NAME:
        most = f"{MAX_RESOURCE_NAME} characters: use a shorter name"
        raise ValueError(f"resource {brief(name, 80)} has more than {most}")
    if not is_subdomain(name.removeprefix(PREFIX)):
        raise ValueError(
            f"invalid resource name {brief(name, 80)}: the part after {PREFIX} must consist of lowercase letters, "
            "digits, dashes and dots, and each part between dots must start and end with a letter or digit"
        )
    return name


class NamedResource(msgspec.Struct, frozen=True):
    """``resources.gpus[]``, ``resources.mig[]``: devices whose model or MIG profile matches are this resource."""

    pattern: str
    """``*`` stands for any characters, all others for themselves."""
    name: str

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", resource_name(self.name))

    def matches(self, text: str) -> bool:
        """Whether the model of a GPU, or the name of a MIG profile, is meant."""
        first, *others = self.pattern.split("*")
        if not others:
            return text == first
        if not text.startswith(first) or len(text) < len(first) + len(others[-1]) or not text.endswith(others[-1]):
            return False
        at, end = len(first), len(text) - len(others[-1])
        for part in others[:-1]:
            at = text.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


class NamedResources(msgspec.Struct, frozen=True):
    """``resources``."""

    gpus: tuple[NamedResource, ...] = ()
    mig: tuple[NamedResource, ...] = ()


DeviceRef = Annotated[int, msgspec.Meta(ge=0)] | str
_Refs = Annotated[tuple[DeviceRef, ...], msgspec.Meta(min_length=1)]


class ReplicatedResource(msgspec.Struct, frozen=True):
    """``resources[]`` of a way of sharing: each of the chosen devices becomes so many replicas."""

    name: str
    replicas: Annotated[int, msgspec.Meta(ge=2)]
    """At most `MAX_SLOTS` in a file that was read: of more there are so many."""
    rename: str = ""
    """What replicas are advertised as; empty: as ``renameByDefault`` says."""
    devices: Literal["all"] | Annotated[int, msgspec.Meta(ge=1)] | _Refs = "all"
    """All of the resource, the first so many, or those named by index (``0``, ``0:1`` for MIG) or uuid."""
    place: int = msgspec.field(default=0, name="(place)")
    """In the list of the file, of which entries may have been left out. Set by whoever reads the file."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", resource_name(self.name))
        if self.rename:
            msgspec.structs.force_setattr(self, "rename", resource_name(self.rename))
        for each in self.refs:
            if not _DEVICE.fullmatch(each):
                raise ValueError(f"device {brief(each, 80)} is not a device: must be {_DEVICE_FORM}")

    @property
    def refs(self) -> tuple[str, ...]:
        """The devices that are named, as text; none: they are not named."""
        return tuple(map(str, self.devices)) if isinstance(self.devices, tuple) else ()


class Replicas(msgspec.Struct, frozen=True, rename="camel"):
    """``sharing.timeSlicing``, ``sharing.mps``."""

    resources: tuple[ReplicatedResource, ...] = ()
    """None where all that the file has were left out."""
    rename_by_default: bool | None = None
    fail_requests_greater_than_one: bool | None = None

    def advertised_as(self, resource: ReplicatedResource) -> str:
        """The kubelet resource of its replicas."""
        return resource.rename or self.by_default(resource)

    def by_default(self, resource: ReplicatedResource) -> str:
        """The same, if the entry says nothing of it."""
        return resource.name + (SHARED_SUFFIX if self.rename_by_default else "")


class Sharing(msgspec.Struct, frozen=True, rename="camel"):
    """``sharing``. Where both are there, MPS counts."""

    time_slicing: Replicas | None = None
    mps: Replicas | None = None


class PluginFlags(msgspec.Struct, frozen=True, rename="camel"):
    """``flags.plugin``. Not said: None."""

    pass_device_specs: bool | None = None
    device_list_strategy: str | tuple[str, ...] | None = None
    device_id_strategy: str | None = msgspec.field(default=None, name="deviceIDStrategy")
    cdi_annotation_prefix: str | None = None
    nvidia_ctk_path: str | None = msgspec.field(default=None, name="nvidiaCTKPath")
    container_driver_root: str | None = None
    shared_devices_allocation_policy: str | None = None


class DiscoveryFlags(msgspec.Struct, frozen=True, rename="camel"):
    """``flags.gfd``: of GPU feature discovery, which reads the same file. Nothing goes by it here: the agent's own
    options say where labels go."""

    oneshot: bool | None = None
    no_timestamp: bool | None = None
    sleep_interval: int | float | str | None = None
    """Nanoseconds, or as Go writes a duration (``60s``), or ``infinite``."""
    output_file: str | None = None
    machine_type_file: str | None = None


class Flags(msgspec.Struct, frozen=True, rename="camel"):
    """``flags``. Not said: None."""

    mig_strategy: str | None = None
    fail_on_init_error: bool | None = None
    mps_root: str | None = None
    nvidia_driver_root: str | None = None
    nvidia_dev_root: str | None = None
    gdrcopy_enabled: bool | None = None
    gds_enabled: bool | None = None
    mofed_enabled: bool | None = None
    use_node_feature_api: bool | None = msgspec.field(default=None, name="useNodeFeatureAPI")
    device_discovery_strategy: str | None = None
    plugin: PluginFlags = PluginFlags()
    gfd: DiscoveryFlags = DiscoveryFlags()


class ImexFlags(msgspec.Struct, frozen=True, rename="camel"):
    """``imex``: channels for GPUs that are attached to a fabric."""

    channel_ids: tuple[int, ...] | None = msgspec.field(default=None, name="channelIDs")
    required: bool | None = None


class PluginFile(msgspec.Struct, frozen=True):
    """The file. The least there can be, an empty one, says nothing."""

    version: str = "v1"
    flags: Flags = Flags()
    resources: NamedResources = NamedResources()
    sharing: Sharing = Sharing()
    imex: ImexFlags = ImexFlags()


class SetAside(msgspec.Struct, frozen=True):
    """GPUs of a node that are not to be handed out, as HAMi's file names them."""

    uuids: frozenset[str] = frozenset()
    indexes: frozenset[int] = frozenset()
    said_by: str = ""
    """Where."""

    def names(self, uuid: str, index: int) -> bool:
        """Whether this GPU is one of them."""
        return uuid in self.uuids or index in self.indexes

    def missing(self, gpus: Iterable[tuple[str, int]]) -> tuple[str, ...]:
        """A sentence for each that is none of these GPUs, by uuid and index."""
        there = list(gpus)
        uuids, indexes = {uuid for uuid, _ in there}, {index for _, index in there}
        unknown = [*sorted(self.uuids - uuids), *(f"index {each}" for each in sorted(self.indexes - indexes))]
        has = ", ".join(map(str, sorted(indexes))) or "none"
        return tuple(
            f"{self.said_by} names {brief(each, MAX_RESOURCE_NAME)}, but the node does not have this GPU: use the "
            f"UUID or index of one of the node's GPUs (indexes: {has})"
            for each in unknown[:MAX_NOTES]
        )


class ReadFile(NamedTuple):
    """A file as it was read."""

    file: PluginFile
    notes: tuple[str, ...] = ()
    """What was passed over, a sentence each: keys that are not known."""
    problems: tuple[str, ...] = ()
    """Entries that are left out, or are followed in part, a sentence each."""
    set_aside: SetAside = SetAside()
    """GPUs that pods are not to get."""


def plugin_file(value: Any) -> ReadFile:
    """The file, decoded from parsed YAML (None for an empty file), with what of it is not followed.

    Raises `SharingError`, and nothing else, where nothing of it can be read.
    """
    unknown: list[str] = []
    problems: list[str] = []
    try:
        tidy = normalise_keys({} if value is None else value, _FILE_TYPE, unknown, exact=_EXACT_TYPES, is_yaml=True)
        _check_version(tidy)
        entries = ReplicatedResource, NamedResource
        found = salvage(_set_places(tidy, problems), PluginFile, FILE, problems, whole=entries, advice=_ADVICE)
    except UnreadableError as error:
        raise SharingError(str(error)) from error
    problems += _empty_section_problems(found.sharing)
    notes = cap_sentences([f"{FILE}: {where} is unknown and ignored" for where in unknown], MAX_NOTES, FILE)
    return ReadFile(msgspec.structs.replace(found, version="v1"), notes, cap_sentences(problems, MAX_PROBLEMS, FILE))


def _check_version(tidy: Any) -> None:
    """What another version means by any of its keys is not known."""
    if not isinstance(tidy, dict):
        raise SharingError(f"{FILE} is not an object: must be keys and values, such as version: v1")
    if (version := tidy.get("version", "v1")) not in ("", "v1"):
        raise SharingError(f"{FILE}: version is {brief(version)}, but must be v1, the only supported version")


def _set_places(tidy: Any, problems: list[str]) -> Any:
    """The file with each resource's place in it, within Purser's limit, and without devices that can be none."""
    sharing = tidy.get("sharing")
    if not isinstance(sharing, dict):
        return tidy
    return {**tidy, "sharing": {way: _sharing_section(section, way, problems) for way, section in sharing.items()}}


def _sharing_section(section: Any, way: str, problems: list[str]) -> Any:
    entries = section.get("resources") if isinstance(section, dict) else None
    if not isinstance(entries, list):
        return section
    kept: list[Any] = []
    for place, entry in enumerate(entries):
        at = f"sharing.{way}.resources[{place}]"
        if isinstance(entry, dict):
            kept.append({**_bounded(entry, at, problems), **_listed(entry, at, problems), "(place)": place})
        else:
            kept.append(entry)
    return {**section, "resources": kept}


def _bounded(entry: dict[str, Any], at: str, problems: list[str]) -> dict[str, Any]:
    """The entry with no more replicas than there can be."""
    replicas = entry.get("replicas")
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas <= MAX_SLOTS:
        return entry
    most = f"must be at most {MAX_SLOTS}, the maximum for a device. Purser uses {MAX_SLOTS} instead"
    problems.append(f"{FILE}: {at}.replicas is {brief(replicas, 24)}: {most}")
    return {**entry, "replicas": MAX_SLOTS}


def _listed(entry: dict[str, Any], at: str, problems: list[str]) -> dict[str, Any]:
    """The devices that can be some; of a list at least one has to be, lest the entry be of all devices."""
    refs = entry.get("devices")
    good = [ref for ref in refs if _is_device_ref(ref)] if isinstance(refs, list) else []
    if not good or not isinstance(refs, list):
        return {}
    invalid_refs = ((place, ref) for place, ref in enumerate(refs) if not _is_device_ref(ref))
    problems += (mistake_sentence(FILE, f"{at}.devices[{place}]", ref, _DEVICE_FORM) for place, ref in invalid_refs)
    return {"devices": good}


def _is_device_ref(ref: Any) -> bool:
    if isinstance(ref, str):
        return _DEVICE.fullmatch(ref) is not None
    return isinstance(ref, int) and not isinstance(ref, bool) and ref >= 0


def _empty_section_problems(sharing: Sharing) -> Iterator[str]:
    for way, section in (("timeSlicing", sharing.time_slicing), ("mps", sharing.mps)):
        if section is not None and not section.resources:
            write = _ADVICE[Replicas, "resources"]
            yield f"{FILE}: sharing.{way}.resources has no valid entry: must be {write}. No devices are shared"


MAX_PROBLEMS = 50
"""Entries that are named at most: an event each."""

_NAME_FORM = "a name such as nvidia.com/gpu"
_ADVICE = {
    (ReplicatedResource, "name"): _NAME_FORM,
    (ReplicatedResource, "rename"): "a name such as nvidia.com/gpu.small",
    (ReplicatedResource, "replicas"): f"an integer from 2 to {MAX_SLOTS}",
    (ReplicatedResource, "devices"): f"all, a number of devices, or a list in which each item is {_DEVICE_FORM}",
    (Replicas, "resources"): "a list with an object for each resource: {name: nvidia.com/gpu, replicas: 2}",
    (NamedResource, "pattern"): "a model or a MIG profile, with * for any characters",
    (NamedResource, "name"): _NAME_FORM,
}

_EXACT_TYPES = (Replicas, ReplicatedResource, NamedResource)
"""What upstream decodes key by key: the names of keys are exact, and null is a value, not the lack of one."""


_FILE_TYPE = type_info(PluginFile)
