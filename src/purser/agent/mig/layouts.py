"""Layouts by name, from a file in the form of NVIDIA's mig-parted, and what one of them means for a node's GPUs."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec

from purser.agent.mig.hardware import Layout, MigGpu
from purser.agent.nvml.migs import MAX_MIG_DEVICES
from purser.core.decoding import UnreadableError, converted
from purser.yaml_reading import read_yaml

MAX_LAYOUTS_BYTES = 1 << 20
MAX_NAMES = 16
"""How many layouts a message names when the requested one does not fit: more than Purser has for any GPU."""

Index = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_MIG_DEVICES)]


class LayoutError(ValueError):
    """A layout that cannot be used; the message names it and says why."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a layout says of some GPUs."""

    devices: Literal["all"] | tuple[Index, ...]
    mig_enabled: bool
    mig_devices: dict[str, Count] = {}
    device_filter: str | tuple[str, ...] = ()
    """GPUs by PCI id, such as ``0x20B010DE``; empty: any."""

    def concerns(self, gpu: MigGpu) -> bool:
        """Whether it speaks of this GPU."""
        only = (self.device_filter,) if isinstance(self.device_filter, str) else self.device_filter
        named = {each.upper() for each in only}
        return (not named or gpu.device_id.upper() in named) and (self.devices == "all" or gpu.index in self.devices)

    @property
    def layout(self) -> Layout:
        """What it says."""
        devices = sorted(name for name, count in self.mig_devices.items() for _ in range(count))
        return Layout(self.mig_enabled, tuple(devices) if self.mig_enabled else ())


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    version: Literal["v1"]
    mig_configs: dict[str, tuple[Entry, ...]]


def read_layouts(text: str) -> dict[str, tuple[Entry, ...]]:
    """The layouts of a file by name. Raises `LayoutError`."""
    try:
        return converted(read_yaml(text, "the layouts", max_bytes=MAX_LAYOUTS_BYTES), _File, "the layouts").mig_configs
    except UnreadableError as error:
        raise LayoutError(str(error)) from error


def wanted(layouts: Mapping[str, Iterable[Entry]], name: str, gpus: Iterable[MigGpu]) -> dict[int, Layout]:
    """What each GPU is to be, by index. Of several entries that concern a GPU the last counts; a GPU that none
    concerns is left alone, and so is one that is to have no MIG and knows none.

    Raises `LayoutError` for a name that is not there, and for one that means nothing for these GPUs.
    """
    there = list(gpus)
    if name not in layouts:
        raise LayoutError(f"there is no layout {name}: {_others(layouts, there)}")
    entries = list(layouts[name])
    found = {gpu.index: entry.layout for gpu in there for entry in entries if entry.concerns(gpu)}
    if not found:
        kinds = ", ".join(sorted({gpu.device_id for gpu in there})) or "none"
        told = f"layout {name} says nothing about the GPUs of this node ({kinds})"
        raise LayoutError(f"{told}: {_others(layouts, there)}")
    for gpu in there:
        if not gpu.capable and found.get(gpu.index, Layout(False)).enabled:
            raise LayoutError(f"layout {name} wants MIG on GPU {gpu.index} ({gpu.device_id}), which knows none")
    return {gpu.index: found[gpu.index] for gpu in there if gpu.index in found and gpu.capable}


def _others(layouts: Mapping[str, Iterable[Entry]], gpus: Iterable[MigGpu]) -> str:
    """What to write instead, in a sentence's end."""
    there = list(gpus)
    names = [name for name, entries in sorted(layouts.items()) if any(e.concerns(c) for e in entries for c in there)]
    more = f" (and {len(names) - MAX_NAMES} more)" if len(names) > MAX_NAMES else ""
    told = f"write one of {', '.join(names[:MAX_NAMES])}{more}"
    return told if names else "the file has none for the GPUs of this node"
