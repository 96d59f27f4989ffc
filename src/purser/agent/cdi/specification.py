"""The form of a CDI specification, as its schema has it, and the oldest version that knows all of one's fields."""

from collections.abc import Iterable, Sequence

import msgspec

from purser.agent.cdi.names import cdi_kind

_VOID_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES=void"
"""NVIDIA's runtime adds nothing of its own to a container with this variable."""


class CdiDeviceNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device file of a container."""

    path: str
    host_path: str = ""
    """Its path on the host where that is another one (since 0.5.0 of CDI)."""
    major: int = 0
    minor: int = 0
    file_mode: int = 0
    permissions: str = ""
    """What the device cgroup allows: of ``rwm``."""
    gid: int = 0


class CdiMount(msgspec.Struct, frozen=True, rename="camel"):
    """A file of the host in a container."""

    host_path: str
    container_path: str
    options: tuple[str, ...]


class CdiHook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A program of the host that the runtime runs for a container."""

    hook_name: str
    path: str
    args: tuple[str, ...]
    env: tuple[str, ...] = ()


class CdiEdits(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a container is given."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[CdiDeviceNode, ...] = ()
    mounts: tuple[CdiMount, ...] = ()
    hooks: tuple[CdiHook, ...] = ()
    additional_gids: tuple[int, ...] = ()
    """Groups of the container's first process (since 0.7.0 of CDI)."""


class CdiDevice(msgspec.Struct, frozen=True, rename="camel"):
    """What a container is given for one device."""

    name: str
    container_edits: CdiEdits


class CdiSpecification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file's content: all devices of a kind."""

    cdi_version: str
    kind: str
    devices: tuple[CdiDevice, ...]
    container_edits: CdiEdits
    """What a container is given once, whichever of the devices it has."""


_NO_EDITS = CdiEdits()


def specification_of(of: str, devices: Iterable[CdiDevice], common: CdiEdits = _NO_EDITS) -> CdiSpecification | None:
    """The specification of a class of devices. ``common``: what a container is given with any of them.

    A device that gives a container nothing is left out. None: no device is left, which no specification can say.
    """
    common_edits = msgspec.structs.replace(common, env=(*common.env, _VOID_VISIBLE_DEVICES))
    return plain_specification(cdi_kind(of), devices, common_edits)


def plain_specification(
    kind: str, devices: Iterable[CdiDevice], common: CdiEdits = _NO_EDITS
) -> CdiSpecification | None:
    """The same of any kind, such as ``intel.com/net-pci``, whose devices may come beside GPUs of NVIDIA's runtime."""
    some = tuple(sorted((each for each in devices if each.container_edits != _NO_EDITS), key=lambda each: each.name))
    if not some:
        return None
    return CdiSpecification(
        cdi_version=_oldest_version(some, (common, *(each.container_edits for each in some))),
        kind=kind,
        devices=some,
        container_edits=common,
    )


def _oldest_version(devices: Sequence[CdiDevice], edits: Sequence[CdiEdits]) -> str:
    """The minimum version that runtimes must support, by the fields in use."""
    if any(each.additional_gids for each in edits):
        return "0.7.0"
    if any(each.name[0].isdecimal() for each in devices):
        return "0.5.0"
    return "0.5.0" if any(node.host_path for each in edits for node in each.device_nodes) else "0.3.0"
