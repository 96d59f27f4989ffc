"""The host's device files of GPUs, in its /dev. All of this blocks."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from purser.agent.host.files import read_head
from purser.agent.nvml.driver import Gpu

CONTROL_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "dxg")
"""In /dev: those that every container with a GPU has, where the host has them. The last is that of WSL, and the only
one there (`GetPaths` of ``internal/rm/nvml_devices.go`` in NVIDIA's device plugin)."""

IMEX_CHANNEL = "nvidia-caps-imex-channels/channel"
"""In /dev; behind it stands the channel's number."""

MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
"""On the host: which device file stands for which capability of MIG."""

KERNEL_DEVICES = Path("/proc/devices")
"""On the host: the major numbers of its kernel's devices."""

_CAPABILITIES = "nvidia-caps"
"""Their name in `KERNEL_DEVICES`, and their folder in /dev."""
_WORLD_READABLE = 0o444
"""What the driver wants of a capability's file (``DeviceFileMode`` in /proc/driver/nvidia/capabilities): who is to
have it is for the container's cgroup to say."""

_MAX_PROC_FILE_BYTES = 1 << 20
_PATTERNS = (
    "nvidia*",
    "dxg",
    "nvidia-caps/*",
    "nvidia-caps-imex-channels/*",
    "dri/*",
    "gdrdrv",
    "infiniband/uverbs*",
    "infiniband/rdma_cm",
)


class DeviceFile(msgspec.Struct, frozen=True):
    """One in /dev."""

    major: int = 0
    minor: int = 0
    mode: int = 0o666
    """Permissions."""
    gid: int = 0
    is_character: bool = True


def find_device_files(dev: Path) -> dict[str, DeviceFile]:
    """Those below a folder ``dev`` that may be of a GPU, or for use with one, by name."""
    return dict(_find_files(dev))


def own_device_files(gpus: Iterable[Gpu], mig_minors: str) -> dict[str, tuple[str, ...]]:
    """By uuid the names of those that a GPU has for itself, of a MIG device those of its capabilities too.
    ``mig_minors``: text of `MIG_MINORS`."""
    caps = mig_capabilities(mig_minors)
    own: dict[str, tuple[str, ...]] = {}
    for gpu in gpus:
        if gpu.minor is None or not gpu.uuid:
            continue
        own[gpu.uuid] = (f"nvidia{gpu.minor}",)
        for mig in gpu.migs:
            instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
            ways = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
            own[mig.uuid] = (f"nvidia{gpu.minor}", *(caps[way] for way in ways if way in caps))
    return own


def mig_capabilities(text: str) -> dict[str, str]:
    """By capability, such as ``gpu0/gi1/access``, the name of its device file."""
    lines = (line.split() for line in text.splitlines())
    return {each[0]: f"nvidia-caps/nvidia-cap{each[1]}" for each in lines if len(each) == 2 and each[1].isdecimal()}


def make_capability_files(dev: Path, names: Iterable[str], kernel_devices: Path) -> None:
    """Make those of MIG's capabilities that are missing in a folder ``dev``: the driver makes none when a GPU instance
    is created, nvidia-modprobe does when it is run. ``names`` are those of device files; other names are ignored.
    Raises OSError."""
    missing = [name for name in names if name.startswith(f"{_CAPABILITIES}/") and not (dev / name).exists()]
    if not missing:
        return
    text = read_head(kernel_devices, _MAX_PROC_FILE_BYTES).decode(errors="replace")
    lines = (line.split() for line in text.splitlines())
    major = next((int(each[0]) for each in lines if each[1:] == [_CAPABILITIES] and each[0].isdecimal()), None)
    if major is None:
        raise OSError(errno.ENXIO, f"the kernel does not provide device {_CAPABILITIES}", str(kernel_devices))
    (dev / _CAPABILITIES).mkdir(mode=0o755, exist_ok=True)
    for name in missing:
        path = dev / name
        with contextlib.suppress(FileExistsError):
            os.mknod(path, stat.S_IFCHR | _WORLD_READABLE, os.makedev(major, int(name.rpartition("nvidia-cap")[2])))
            path.chmod(_WORLD_READABLE)


def read_mig_minors(path: Path) -> str:
    """Empty where the driver knows no MIG."""
    try:
        return read_head(path, _MAX_PROC_FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _find_files(dev: Path) -> Iterator[tuple[str, DeviceFile]]:
    for pattern in _PATTERNS:
        for path in dev.glob(pattern):
            try:
                found = path.stat()
            except OSError:  # gone, or a link to nothing
                continue
            if not stat.S_ISDIR(found.st_mode):
                yield str(path.relative_to(dev)), _device_file(found)


def _device_file(found: os.stat_result) -> DeviceFile:
    return DeviceFile(
        major=os.major(found.st_rdev),
        minor=os.minor(found.st_rdev),
        mode=stat.S_IMODE(found.st_mode),
        gid=found.st_gid,
        is_character=stat.S_ISCHR(found.st_mode),
    )
