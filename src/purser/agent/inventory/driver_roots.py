"""Where a node's driver is: NVIDIA's validator finds out on each node, and writes it down."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from purser.agent.host.files import read_head
from purser.agent.nvml.library import find_library
from purser.core.sharing import PluginSettings

MAX_ROOTS_FILE_BYTES = 64 << 10


class DriverPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What the validator's file says, with paths of the host."""

    on_host: bool
    """It is the node's own."""
    root: str
    """The driver's files are below it."""
    dev_root: str
    """Device nodes are in ``dev`` below it."""


def read_place(file: Path | None) -> DriverPlace | None:
    """The root in a file ``driver-ready``; None: there is no file yet, or it names no root."""
    if file is None:
        return None
    try:
        text = read_head(file, MAX_ROOTS_FILE_BYTES).decode(errors="replace")
    except OSError:
        return None
    variables = dict(line.strip().partition("=")[::2] for line in text.splitlines())
    root = variables.get("NVIDIA_DRIVER_ROOT", "")
    if not root.startswith("/"):
        return None
    dev_root = variables.get("NVIDIA_DEV_ROOT", "")
    on_host = variables.get("IS_HOST_DRIVER") == "true"
    return DriverPlace(on_host=on_host, root=root, dev_root=dev_root if dev_root.startswith("/") else root)


def find_place(given: Sequence[Path], host_root: Path) -> DriverPlace | None:
    """The first of the given roots that has the driver's library, where no file names it."""
    for root in given:
        if find_library((root,)) is None:
            continue
        if root == host_root or not root.is_relative_to(host_root):
            return DriverPlace(on_host=True, root="/", dev_root="/")
        path = f"/{root.relative_to(host_root)}"
        return DriverPlace(on_host=False, root=path, dev_root=path if (root / "dev").is_dir() else "/")
    return None


def driver_place(held: PluginSettings, file: Path | None, given: Sequence[Path], host_root: Path) -> DriverPlace:
    """Where the device plugin's settings say; where they say nothing, which is the host's root, where it is found."""
    dev_root = held.dev_root or held.driver_root
    if (held.driver_root, dev_root) == ("/", "/"):
        found = read_place(file) or find_place(given, host_root)
        if found is not None:
            return found
    return DriverPlace(on_host=held.driver_root == "/", root=held.driver_root, dev_root=dev_root)


def driver_roots(file: Path | None, given: Sequence[Path], host_root: Path) -> tuple[Path, ...]:
    """Where to look for the driver, as this process sees the host: where the file says, or in the given places as long
    as there is none."""
    place = read_place(file)
    if place is None:
        return tuple(given)
    return (host_root if place.on_host else host_root / place.root.lstrip("/"),)
