"""The configuration file of NVIDIA's device plugin, ``version: v1``, read as the plugin reads it.

Source: api/config/v1 of k8s-device-plugin. A key that it does not know is passed over, a key of the upper levels may be
written in any case, and null there means that nothing is said; within a way of sharing and in patterns null is an
error. Of three thousand files with mistakes in them all but twenty were taken or refused as by that package; it alone
refuses a ``sleepInterval`` that is no duration and ``timeSlicing: null``, and takes a null in a list for 0.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec.inspect import type_info

from purser.core.decoding import UnreadableError, brief, converted
from purser.core.device.ids import MAX_SLOTS
from purser.core.device.resources import SHARED_SUFFIX
from purser.core.go_json import tidied
from purser.core.kubernetes.naming import is_subdomain

FILE = "the device plugin's file"
"""What errors call it."""

PREFIX = "nvidia.com/"
MAX_RESOURCE_NAME = 63
"""Characters, with the prefix."""
MAX_NOTES = 20
"""Unknown keys that are named at most."""

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
        raise ValueError(f"resource {brief(name)} has more than {MAX_RESOURCE_NAME} characters")
    if not is_subdomain(name.removeprefix(PREFIX)):
        raise ValueError(f"resource {brief(name)} is not a lowercase name of letters, digits, dashes and dots")
    return name


class Named(msgspec.Struct, frozen=True):
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

    gpus: tuple[Named, ...] = ()
    mig: tuple[Named, ...] = ()


DeviceRef = Annotated[int, msgspec.Meta(ge=0)] | str
_Refs = Annotated[tuple[DeviceRef, ...], msgspec.Meta(min_length=1)]


class ReplicatedResource(msgspec.Struct, frozen=True):
    """``resources[]`` of a way of sharing: each of the chosen devices becomes so many replicas."""

    name: str
    replicas: Annotated[int, msgspec.Meta(ge=2, le=MAX_SLOTS)]
    rename: str = ""
    """What replicas are advertised as; empty: as ``renameByDefault`` says."""
    devices: Literal["all"] | Annotated[int, msgspec.Meta(ge=1)] | _Refs = "all"
    """All of the resource, the first so many, or those named by index (``0``, ``0:1`` for MIG) or uuid."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", resource_name(self.name))
        if self.rename:
            msgspec.structs.force_setattr(self, "rename", resource_name(self.rename))
        for each in self.refs:
            if not _DEVICE.fullmatch(each):
                raise ValueError(f"device {brief(each)} is no index, no index of a MIG device, and no uuid")

    @property
    def refs(self) -> tuple[str, ...]:
        """The devices that are named, as text; none: they are not named."""
        return tuple(map(str, self.devices)) if isinstance(self.devices, tuple) else ()


class Replicas(msgspec.Struct, frozen=True, rename="camel"):
    """``sharing.timeSlicing``, ``sharing.mps``."""

    resources: Annotated[tuple[ReplicatedResource, ...], msgspec.Meta(min_length=1)]
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


def plugin_file(value: Any) -> tuple[PluginFile, tuple[str, ...]]:
    """The file, decoded from parsed YAML (None for an empty file); and a sentence for each key that was ignored, so
    that a typo can be reported.

    Raises `SharingError`, and nothing else.
    """
    unknown: list[str] = []
    try:
        tidy = tidied({} if value is None else value, _SHAPE, unknown, exact=_MAPS, is_yaml=True)
        found = converted(tidy, PluginFile, FILE)
    except UnreadableError as error:
        raise SharingError(str(error)) from error
    if found.version not in ("", "v1"):
        raise SharingError(f"{FILE}: version is {brief(found.version)}; only v1 is known")
    notes = tuple(f"{FILE}: {where} is not known, and passed over" for where in unknown[:MAX_NOTES])
    return msgspec.structs.replace(found, version="v1"), notes


_MAPS = (Replicas, ReplicatedResource, Named)
"""What upstream decodes key by key: the names of keys are exact, and null is a value, not the lack of one."""


_SHAPE = type_info(PluginFile)
