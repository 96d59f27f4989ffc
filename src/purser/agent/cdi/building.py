"""What a container is given for a GPU: the contents are those of NVIDIA's container toolkit. Pure."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from purser.agent.cdi.driver_files import DriverFiles
from purser.agent.cdi.specification import (
    CdiDevice,
    CdiDeviceNode,
    CdiEdits,
    CdiHook,
    CdiMount,
    CdiSpecification,
    specification_of,
)
from purser.agent.inventory.device_files import CONTROL_DEVICES, DeviceFile

_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_WORLD_READ_WRITE = 0o006


class CdiHost(msgspec.Struct, frozen=True, kw_only=True):
    """The host's files that specifications name."""

    nodes: Mapping[str, DeviceFile]
    """Device files, by name in /dev."""
    driver_root: str = ""
    """Before the paths of the driver's files; empty: nothing."""
    dev_root: str = ""
    """On the host, before /dev."""
    hook: str = ""
    """nvidia-cdi-hook or nvidia-ctk; empty: neither is there."""


class GpuNodes(msgspec.Struct, frozen=True):
    """Device files that a GPU or a MIG device has for itself."""

    names: tuple[str, ...]
    """In /dev; the first is the one without which nothing goes."""
    links: tuple[tuple[str, str], ...] = ()
    """Of /dev/dri: what a link says, and its path."""


def gpu_specification(
    host: CdiHost, files: DriverFiles | None, devices: Mapping[str, GpuNodes]
) -> CdiSpecification | None:
    """The specification of the class ``gpu``; None: no device has its device files on the host. ``devices``: by their
    names of CDI. ``files``: None where there are none to find."""
    own = (CdiDevice(name, _gpu(host, nodes)) for name, nodes in devices.items())
    return specification_of("gpu", own, _common_edits(host, files))


def node_specification(
    of: str, host: CdiHost, devices: Mapping[str, Iterable[str]], files: Iterable[str] = ()
) -> CdiSpecification | None:
    """The specification of a class whose devices are some device files each; None: the host has none of them.
    ``devices``: names in /dev, by name of CDI. ``files``: paths below the driver's root that come with each."""
    mounts = tuple(CdiMount(f"{host.driver_root}{path}", path, _READ_ONLY) for path in files)
    edits = ((name, _with_nodes(host, names)) for name, names in devices.items())
    cdi_devices = (
        CdiDevice(name, msgspec.structs.replace(each, mounts=mounts)) for name, each in edits if each.device_nodes
    )
    return specification_of(of, cdi_devices)


def _common_edits(host: CdiHost, files: DriverFiles | None) -> CdiEdits:
    nodes = _with_nodes(host, sorted(CONTROL_DEVICES))
    if files is None:
        return nodes
    return msgspec.structs.replace(
        nodes,
        env=(f"NVIDIA_CTK_LIBCUDA_DIR={':'.join(files.folders)}",),
        mounts=tuple(sorted(_mounts(host, files), key=lambda each: each.container_path)),
        hooks=tuple(_hooks(host.hook, files)),
    )


def _gpu(host: CdiHost, nodes: GpuNodes) -> CdiEdits:
    if nodes.names[0] not in host.nodes:
        return CdiEdits()
    edits = _with_nodes(host, nodes.names)
    hooks = (_hook(host.hook, "create-symlinks", *_link_options(nodes.links)),) if nodes.links and host.hook else ()
    return msgspec.structs.replace(edits, hooks=hooks)


def _with_nodes(host: CdiHost, names: Iterable[str]) -> CdiEdits:
    found = [(name, host.nodes[name]) for name in sorted(names) if name in host.nodes and host.nodes[name].is_character]
    groups = {node.gid for _, node in found if node.gid and node.mode & _WORLD_READ_WRITE != _WORLD_READ_WRITE}
    return CdiEdits(
        device_nodes=tuple(_node(host, name, node) for name, node in found), additional_gids=tuple(sorted(groups))
    )


def _node(host: CdiHost, name: str, node: DeviceFile) -> CdiDeviceNode:
    return CdiDeviceNode(
        path=f"/dev/{name}",
        host_path=f"{host.dev_root}/dev/{name}" if host.dev_root else "",
        major=node.major,
        minor=node.minor,
        file_mode=node.mode,
        permissions="rwm",
        gid=node.gid,
    )


def _mounts(host: CdiHost, files: DriverFiles) -> Iterator[CdiMount]:
    for path in (*files.libraries, *files.others):
        yield CdiMount(f"{host.driver_root}{path}", path, _READ_ONLY)
    for path, in_container in files.moved:
        yield CdiMount(f"{host.driver_root}{path}", in_container, _READ_ONLY)
    for path in files.sockets:
        yield CdiMount(f"{host.driver_root}{path}", path, _SOCKET)


def _hooks(program: str, files: DriverFiles) -> Iterator[CdiHook]:
    """All that the toolkit has but the newest, update-application-profile (1.20): toolkits before 1.18 let no container
    start with a hook that they do not know."""
    if not program:
        return
    if files.links:
        yield _hook(program, "create-symlinks", *_link_options(files.links))
    yield _hook(program, "enable-cuda-compat", f"--host-driver-version={files.version}")
    if files.folders:
        yield _hook(program, "update-ldcache", *(word for each in files.folders for word in ("--folder", each)))
    yield _hook(program, "disable-device-node-modification")


def _link_options(links: Iterable[tuple[str, str]]) -> Iterator[str]:
    for target, path in links:
        yield from ("--link", f"{target}::{path}")


def _hook(program: str, name: str, *arguments: str) -> CdiHook:
    base = program.rpartition("/")[2]
    command = (base, "hook", name) if base == "nvidia-ctk" else (base, name)
    return CdiHook(
        hook_name="createContainer", path=program, args=(*command, *arguments), env=("NVIDIA_CTK_DEBUG=false",)
    )
