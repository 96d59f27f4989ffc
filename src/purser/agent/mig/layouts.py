"""Layouts by name, from a file in the form of NVIDIA's mig-parted, and what one of them means for a node's GPUs."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from purser.agent.mig.hardware import Layout, MigGpu, OfferedProfile
from purser.agent.nvml.migs import MAX_MIG_DEVICES
from purser.core.decoding import UnreadableError, brief
from purser.core.salvaging import salvage, shown
from purser.yaml_reading import read_yaml

MAX_LAYOUTS_BYTES = 1 << 20
MAX_NAMES = 16
"""How many layouts a message names when the requested one does not fit: more than Purser has for any GPU."""

Index = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_MIG_DEVICES)]


class LayoutError(ValueError):
    """A layout that cannot be used; the message names it and says why."""


class LayoutEntry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a layout says of some GPUs."""

    devices: Literal["all"] | tuple[Index, ...]
    mig_enabled: bool
    mig_devices: dict[str, Count] = {}
    device_filter: str | tuple[str, ...] = ()
    """GPUs by PCI id, such as ``0x20B010DE``; empty: any."""

    @property
    def applies_to_all(self) -> bool:
        """Whether it means all GPUs of the node, or all of some kinds: of these it concerns those that can be cut."""
        return self.devices == "all"

    def concerns(self, gpu: MigGpu) -> bool:
        """Whether it speaks of this GPU."""
        accepted = (self.device_filter,) if isinstance(self.device_filter, str) else self.device_filter
        named = {each.upper() for each in accepted}
        return (not named or gpu.device_id.upper() in named) and (self.applies_to_all or gpu.index in self.devices)

    @property
    def layout(self) -> Layout:
        """What it says."""
        devices = sorted(name for name, count in self.mig_devices.items() for _ in range(count))
        return Layout(self.mig_enabled, tuple(devices) if self.mig_enabled else ())

    @property
    def asks_for(self) -> dict[str, int]:
        """The profiles of its MIG devices, and how many of each."""
        return {name: count for name, count in self.mig_devices.items() if count} if self.mig_enabled else {}


Layouts = Mapping[str, tuple[LayoutEntry, ...] | LayoutError]
"""By name the entries of a layout, or why it cannot be used."""

Offers = Mapping[int, Mapping[str, OfferedProfile]]
"""By GPU, the profiles that it offers. A GPU that is not there, or that has none: its driver does not say."""


def read_layouts(text: str, file: str = "the layouts") -> dict[str, tuple[LayoutEntry, ...] | LayoutError]:
    """The layouts of a file by name; a layout with a mistake costs itself alone. ``file``: what errors call it. Raises
    `LayoutError` where there are none at all."""
    try:
        found = read_yaml(text, file, max_bytes=MAX_LAYOUTS_BYTES, big_integers_as_text=True)
    except UnreadableError as error:
        raise LayoutError(str(error)) from error
    if not isinstance(found, dict) or found.get("version") != "v1":
        raise LayoutError(f"{file} have an unknown version: must be version: v1")
    named = found.get("mig-configs")
    if not isinstance(named, dict):
        raise LayoutError(f"{file} have no valid mig-configs: must be an object with layouts by name")
    return {str(name): _layout(each, f"{file}: mig-configs.{brief(name, 60)}") for name, each in named.items()}


def _layout(entries: Any, where: str) -> tuple[LayoutEntry, ...] | LayoutError:
    if not isinstance(entries, list) or not entries:
        return LayoutError(f"{where} is {shown(entries)}: must be a list of at least one object")
    mistakes: list[str] = []
    found = [_entry(each, f"{where}[{place}]", mistakes) for place, each in enumerate(entries)]
    return LayoutError("; ".join(mistakes)) if mistakes else tuple(filter(None, found))


def _entry(value: Any, where: str, mistakes: list[str]) -> LayoutEntry | None:
    """None: it has a mistake."""
    found: list[str] = []
    try:
        entry = salvage(value, LayoutEntry, where, found, advice=_ADVICE)
    except UnreadableError as error:
        entry, found = None, [str(error)]
    if isinstance(value, dict):
        counts = list(_device_mistakes(value.get("mig-devices"), where))
        found = [*(each for each in found if not (counts and ": mig-devices is " in each)), *counts]
        found += (_unknown_key(key, where) for key in value if key not in _KEYS)
    mistakes += (each.removesuffix(". The value is ignored").removesuffix(". The entry is ignored") for each in found)
    return None if found else entry


def _device_mistakes(devices: Any, where: str) -> Iterator[str]:
    """What is wrong with single profiles."""
    for name, count in devices.items() if isinstance(devices, dict) else ():
        here = f"{where}: mig-devices.{brief(name, 40)}"
        if not isinstance(name, str) or not _PROFILE.fullmatch(name):
            yield f"{here} is not a profile: use one such as 1g.10gb or 1g.10gb+me"
        elif isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_MIG_DEVICES:
            yield f"{here} is {shown(count)}: must be a whole number from 0 to {MAX_MIG_DEVICES}"


def _unknown_key(key: Any, where: str) -> str:
    """A key that counted for nothing would make another layout of it: mig-parted refuses it as well."""
    close = next(iter(difflib.get_close_matches(str(key), _KEYS, 1)), "")
    advice = f"did you mean {close}?" if close else f"must be one of {', '.join(_KEYS)}"
    return f"{where}: unknown field {brief(key, 40)}: {advice}"


_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(LayoutEntry))
_PROFILE = re.compile(r"([0-9]+c\.)?[0-9]+g\.[0-9]+gb([-+.][a-z.]+)*", re.ASCII)
_ADVICE = {
    (LayoutEntry, "devices"): "all, or a list of GPU indexes",
    (LayoutEntry, "mig-enabled"): "true or false",
    (LayoutEntry, "mig-devices"): "a map of profiles to counts, such as {1g.5gb: 7}",
    (LayoutEntry, "device-filter"): "a PCI id such as 0x20B010DE, or a list of them",
}


def wanted(layouts: Layouts, name: str, gpus: Iterable[MigGpu], offers: Offers | None = None) -> dict[int, Layout]:
    """What each GPU is to be, by index. Of several entries that concern a GPU the last counts, of those with a
    ``device-filter`` whose profiles the GPU offers, where there is one: names of profiles differ with the memory that a
    board's maker leaves free. A GPU that none concerns is left alone, and so is one that knows no MIG, where it is to
    have none or its entry is for ``all`` (as mig-parted does, ``cmd/nvidia-mig-parted/apply`` at bd7160f4).

    Raises `LayoutError` for a name that is not there, and for a layout that means nothing for these GPUs or that the
    profiles which they offer contradict. Unlike in mig-parted, a layout that wants MIG is a mistake where no GPU that
    it concerns can be cut: it would change nothing, and be told to be applied.
    """
    there, offers = list(gpus), offers or {}
    if name not in layouts:
        raise LayoutError(f"layout {name} does not exist: {_alternatives(layouts, there, offers)}")
    entries = layouts[name]
    if isinstance(entries, LayoutError):
        raise LayoutError(str(entries))
    chosen = {gpu.index: entry for gpu in there if (entry := _entry_for(entries, gpu, offers)) is not None}
    if not chosen:
        kinds = ", ".join(sorted({gpu.device_id for gpu in there})) or "none"
        text = f"the layout has no entry for this node's GPUs ({kinds})"
        raise LayoutError(f"{text}: {_alternatives(layouts, there, offers)}")
    has_capable = any(gpu.capable for gpu in there if gpu.index in chosen)
    for gpu in there:
        entry = chosen.get(gpu.index)
        if entry is None:
            continue
        if not gpu.capable and entry.layout.enabled and not (entry.applies_to_all and has_capable):
            raise LayoutError(
                f"the layout enables MIG on GPU {gpu.index} ({gpu.device_id}), which does not support MIG: "
                f"exclude that GPU with devices or device-filter"
            )
        if contradiction := _contradiction(entry, offers.get(gpu.index, {})):
            raise LayoutError(f"GPU {gpu.index} {contradiction}: {_alternatives(layouts, there, offers)}")
    return {gpu.index: chosen[gpu.index].layout for gpu in there if gpu.index in chosen and gpu.capable}


def _entry_for(entries: Iterable[LayoutEntry], gpu: MigGpu, offers: Offers) -> LayoutEntry | None:
    """The entry by which a GPU goes; None: none concerns it."""
    concerned = [entry for entry in entries if entry.concerns(gpu)]
    fitting = [entry for entry in concerned if not _contradiction(entry, offers.get(gpu.index, {}))]
    if concerned and concerned[-1].device_filter and any(entry.device_filter for entry in fitting):
        return next(entry for entry in reversed(fitting) if entry.device_filter)
    return concerned[-1] if concerned else None


_ROUNDING_TOLERANCE = 1.05
"""How much more the memory of small instances may be told to be in all than that of the largest."""


def _contradiction(entry: LayoutEntry, offered: Mapping[str, OfferedProfile]) -> str:
    """Why a GPU that offers these profiles cannot be what an entry says; empty: nothing is known against it. Where all
    that is asked for lies, only the driver finds out: what has room by its sums may still not fit."""
    asked = entry.asks_for
    if not offered or not asked:
        return ""
    if unknown := sorted(asked.keys() - offered.keys()):
        return f"does not support {', '.join(unknown)}, only {', '.join(sorted(offered))}"
    over = next((name for name, count in sorted(asked.items()) if count > offered[name].most), "")
    if over:
        return f"has room for only {offered[over].most}x {over}, not {asked[over]}x"
    for size, unit, tolerance in (("slices", "compute slices", 1.0), ("memory_mib", "MiB", _ROUNDING_TOLERANCE)):
        has = max(getattr(each, size) for each in offered.values())
        needed = sum(count * getattr(offered[name], size) for name, count in asked.items())
        if needed > has * tolerance > 0:
            text = ", ".join(f"{count}x {name}" for name, count in sorted(asked.items()))
            return f"has {has} {unit}, but {text} require {needed}"
    return ""


def _alternatives(layouts: Layouts, gpus: Iterable[MigGpu], offers: Offers) -> str:
    """What to write instead, in a sentence's end."""
    there = [gpu for gpu in gpus if gpu.capable]

    def is_applicable(entries: tuple[LayoutEntry, ...]) -> bool:
        found = [(gpu, _entry_for(entries, gpu, offers)) for gpu in there]
        chosen = [(gpu, entry) for gpu, entry in found if entry is not None]
        return bool(chosen) and not any(_contradiction(entry, offers.get(gpu.index, {})) for gpu, entry in chosen)

    names = [
        name for name, each in sorted(layouts.items()) if not isinstance(each, LayoutError) and is_applicable(each)
    ]
    more = f" (and {len(names) - MAX_NAMES} more)" if len(names) > MAX_NAMES else ""
    text = f"use {'one of' if len(names) > 1 else 'layout'} {', '.join(names[:MAX_NAMES])}{more}"
    return text if names else "the file has no layout for this node's GPUs"
