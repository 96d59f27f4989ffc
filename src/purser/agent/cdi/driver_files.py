"""The driver's files that a container needs, found below the driver's root as NVIDIA's container toolkit finds them:
libraries by the driver's version, programs, firmware, sockets of its services, configuration for graphics.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from purser.agent.cdi.tree import HostTree
from purser.agent.host.files import read_head
from purser.agent.nvml.library import LIBRARY_FOLDERS

_FOLDERS = (
    *(f"/{each}" for each in LIBRARY_FOLDERS),
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
)
_OTHER_VERSIONED_LIBRARIES = (
    "libnvidia-nvvm70.so.*",
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
)
_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_SOCKET_FOLDERS = ("/run", "/var/run")
_FIRMWARE_PATH = Path("/sys/module/firmware_class/parameters/path")
_CONFIGURATION_FOLDERS = ("/etc", "/usr/local/share", "/usr/share")
_CONFIGURATIONS = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "OpenCL/vendors/nvidia.icd",
)
_VULKAN = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
    f"vulkan/icd.d/nvidia_icd.{os.uname().machine}.json",
)
_XORG_FOLDERS = (
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)


class DriverFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's files, by their paths below its root, which are their paths in a container as well."""

    version: str
    libraries: tuple[str, ...] = ()
    """The files themselves; links to them are ``links``."""
    links: tuple[tuple[str, str], ...] = ()
    """To libraries: what a link says, and its path."""
    others: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    """Those with another path in a container, which is the second."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders with libraries that a container's dynamic loader is to find, each once."""
        names = (each.rpartition("/") for each in self.libraries)
        return tuple(dict.fromkeys(folder for folder, _, name in names if name.startswith("lib")))


def find_driver_files(root: HostTree, version: str) -> DriverFiles:
    """Find what containers need of the driver of this version, such as ``550.163.01``. Blocks.

    What is not there, or cannot be read, is left out.
    """
    found = _libraries(root, version)
    folders = tuple(dict.fromkeys(each.rpartition("/")[0] for each in found))
    xorg = _first_matches(
        root,
        (f"{folder}/{each}" for folder in (*folders, "/usr/lib", "/usr/lib64") for each in _XORG_FOLDERS),
        ("nvidia_drv.so", f"libglxserver_nvidia.so.{version}"),
    )
    return DriverFiles(
        version=version,
        libraries=(*found, *xorg),
        links=tuple(_links(root, found, version)),
        others=(
            *_first_matches(root, _PROGRAM_FOLDERS, _PROGRAMS, programs=True),
            *_firmware(root, version),
            *_existing_files(
                root, (f"{folder}/{each}" for each in _CONFIGURATIONS for folder in _CONFIGURATION_FOLDERS)
            ),
        ),
        sockets=tuple(_first_matches(root, _SOCKET_FOLDERS, _SOCKETS)),
        moved=tuple(_vulkan_files(root)),
    )


def _libraries(root: HostTree, version: str) -> tuple[str, ...]:
    folders = {at: None for at in map(root.resolved, _FOLDERS) if at is not None}
    with_driver = [each for each in folders if root.glob(f"{each}/lib*.so.{version}")]
    patterns = [f"{folder}{each}/*.so.{version}" for folder in with_driver for each in ("", "/vdpau")]
    patterns += [f"{folder}/{each}" for folder in with_driver for each in _OTHER_VERSIONED_LIBRARIES]
    found = (root.resolved(path) for pattern in patterns for path in root.glob(pattern))
    return tuple(dict.fromkeys(path for path in found if path is not None))


def _links(root: HostTree, libraries: Iterable[str], version: str) -> Iterator[tuple[str, str]]:
    """Those beside a library that lead to it, and a few that programs expect to be there."""
    made: dict[str, str] = {}
    for library in libraries:
        folder, _, name = library.rpartition("/")
        stem = name.partition(".so")[0]
        for each in root.names(folder):
            if each == f"{stem}.so" or each.startswith(f"{stem}.so."):
                link = root.link(f"{folder}/{each}")
                if link is not None and "/" not in link and root.resolved(f"{folder}/{each}") == library:
                    made[f"{folder}/{each}"] = link
        if name == f"libcuda.so.{version}":
            made[f"{folder}/libcuda.so"] = "libcuda.so.1"
        elif name == f"libnvidia-opticalflow.so.{version}":
            made[f"{folder}/libnvidia-opticalflow.so"] = "libnvidia-opticalflow.so.1"
        elif name == f"libGLX_nvidia.so.{version}":
            made[f"{folder}/libGLX_indirect.so.0"] = name
        elif name == f"libnvidia-vulkan-producer.so.{version}":
            made[f"{folder}/libnvidia-vulkan-producer.so"] = name
        elif name == f"libnvidia-allocator.so.{version}":
            made[f"{folder}/gbm/nvidia-drm_gbm.so"] = "../libnvidia-allocator.so.1"
    yield from ((target, path) for path, target in sorted(made.items()))


def _firmware(root: HostTree, version: str) -> list[str]:
    release = os.uname().release
    folders = [f"/lib/firmware/updates/{release}", "/lib/firmware/updates", f"/lib/firmware/{release}", "/lib/firmware"]
    try:
        own = read_head(_FIRMWARE_PATH, os.pathconf("/", "PC_PATH_MAX")).decode(errors="replace").strip()
    except OSError:
        own = ""
    if own.startswith("/"):
        folders.insert(0, own.rstrip("/"))
    found = (path for each in folders for path in root.glob(f"{each}/nvidia/{version}/gsp*.bin"))
    return list(dict.fromkeys(found))


def _vulkan_files(root: HostTree) -> Iterator[tuple[str, str]]:
    """What drivers of some clouds keep right below their root."""
    for each in _VULKAN:
        path = next(iter(_existing_files(root, (f"{folder}/{each}" for folder in (*_CONFIGURATION_FOLDERS, "")))), None)
        if path is not None:
            yield path, str(PurePosixPath("/etc") / each)


def _first_matches(
    root: HostTree, folders: Iterable[str], names: Iterable[str], *, programs: bool = False
) -> Iterator[str]:
    """Of each name, the file in the first folder that has it."""
    folders, exists = tuple(folders), root.is_executable if programs else root.is_file
    for name in names:
        path = next((f"{each}/{name}" for each in folders if exists(f"{each}/{name}")), None)
        if path is not None:
            yield path


def _existing_files(root: HostTree, paths: Iterable[str]) -> list[str]:
    return [each for each in paths if root.is_file(each)]
