"""Which devices a selector means.

Source: pkg/resources/deviceSelectors.go of sriov-network-device-plugin, and the order in which its device providers
filter.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from purser.core.decoding import brief
from purser.core.sriov.configuration import SriovPoolConfig, SriovSelector
from purser.core.sriov.devices import NO_INDEX, SriovDevice

_MAX_VALUES_SHOWN = 6
"""Values that a message names at most."""


class FunctionRange(msgspec.Struct, frozen=True):
    """What a value of ``pfNames`` or ``rootDevices`` means."""

    pf: str
    """Name or PCI address of the PF, in lower case."""
    ranges: tuple[tuple[int, int], ...] | None
    """Of functions, both ends included; None: all functions."""
    problem: str = ""
    """What of the value cannot be read: a part of a sentence. Ranges before that count."""

    def has(self, index: int) -> bool:
        """Whether it means this function of its PF."""
        return self.ranges is None or any(first <= index <= last for first, last in self.ranges)


def function_range(text: str) -> FunctionRange:
    """A value such as ``ens1f0`` or ``ens1f0#0,2-7``."""
    pf, mark, ranges = text.partition("#")
    if not mark:
        return FunctionRange(pf.lower(), None)
    found: list[tuple[int, int]] = []
    for each in ranges.split(","):
        first, dash, last = each.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdecimal() and len(end) <= _MAX_DIGITS for end in ends):
            return FunctionRange(
                pf.lower(),
                tuple(found),
                f"{brief(text, 60)} does not name a PF or its VFs: must have the form PF, PF#1 or PF#0,2-7",
            )
        found.append((int(ends[0]), int(ends[1])))
    return FunctionRange(pf.lower(), tuple(found))


_MAX_DIGITS = 9


class _Condition(msgspec.Struct, frozen=True):
    name: str
    holds: Callable[[SriovDevice], bool]
    value: Callable[[SriovDevice], str]
    """What the device has, for a message."""


class SelectorFilter:
    """A selector, prepared for many devices."""

    def __init__(self, selector: SriovSelector) -> None:
        self.selector = selector
        self.problems: list[str] = []
        """Values that mean no device, a part of a sentence each."""
        self._conditions = tuple(self._build_conditions())

    def selects(self, device: SriovDevice) -> bool:
        """Whether it means this device."""
        return all(each.holds(device) for each in self._conditions)

    def why_none(self, devices: Sequence[SriovDevice]) -> str:
        """The first condition that leaves none of these devices, and what they have instead: part of a sentence."""
        left = list(devices)
        for each in self._conditions:
            before, left = left, [device for device in left if each.holds(device)]
            if not left:
                found = sorted({each.value(device) or "none" for device in before})
                more = f" and {len(found) - _MAX_VALUES_SHOWN} more" if len(found) > _MAX_VALUES_SHOWN else ""
                count = len(before)
                match = "does not match the only device" if count == 1 else f"matches none of the {count} devices"
                return f"{each.name} {match}: found {', '.join(found[:_MAX_VALUES_SHOWN])}{more}"
        return ""

    def _build_conditions(self) -> Iterator[_Condition]:
        """In the order of the plugin."""
        one = self.selector
        yield from _is_any_of("vendors", one.vendors, lambda device: device.vendor)
        yield from _is_any_of("devices", one.devices, lambda device: device.device)
        yield from _is_any_of("drivers", one.drivers, lambda device: device.driver)
        yield from _is_any_of("pciAddresses", one.pci_addresses, lambda device: device.address)
        yield from _is_any_of("acpiIndexes", one.acpi_indexes, lambda device: device.acpi_index)
        yield from _is_any_of("auxTypes", one.aux_types, lambda device: device.aux_type)
        yield from self._in_ranges("pfNames", one.pf_names, _pf_names)
        yield from self._in_ranges("rootDevices", one.root_devices, lambda device: (_pf_address(device),))
        yield from _is_any_of("linkTypes", one.link_types, lambda device: device.link_type)
        yield from _is_any_of("ddpProfiles", one.ddp_profiles, lambda device: device.ddp_profile)
        yield from _is_any_of("pKeys", one.p_keys, lambda device: device.p_key)
        if one.is_rdma:
            yield _Condition("isRdma", lambda device: bool(device.rdma), lambda device: "no RDMA device")
        if one.vdpa_type:
            yield _Condition("vdpaType", lambda device: _vdpa_type(device) == one.vdpa_type, _vdpa_type)

    def _in_ranges(
        self, name: str, texts: Sequence[str], pfs_of: Callable[[SriovDevice], tuple[str, ...]]
    ) -> Iterator[_Condition]:
        if not texts:
            return
        by_pf: dict[str, FunctionRange] = {}
        for text in texts:
            found = function_range(text)
            if found.problem:
                self.problems.append(f"{name}: {found.problem}")
            if found.pf in by_pf:
                self.problems.append(
                    f"{name}: {brief(text, 60)} has no effect: only the first entry for each PF applies"
                )
            by_pf.setdefault(found.pf, found)

        def holds(device: SriovDevice) -> bool:
            found = (by_pf[pf.lower()] for pf in pfs_of(device) if pf.lower() in by_pf)
            return any(each.has(device.index) for each in found)

        def value_of(device: SriovDevice) -> str:
            number = "" if device.index == NO_INDEX else f"#{device.index}"
            return " or ".join(f"{pf}{number}" for pf in pfs_of(device))

        yield _Condition(name, holds, value_of)


def _pf_names(device: SriovDevice) -> tuple[str, ...]:
    return tuple(filter(None, (device.pf_name, *device.pf_aliases)))


def _pf_address(device: SriovDevice) -> str:
    """A function without a PF is its own, as upstream's ``GetPfAddr`` has it."""
    return device.pf_address or device.address


def _is_any_of(name: str, wanted: Sequence[str], of: Callable[[SriovDevice], str]) -> Iterator[_Condition]:
    if wanted:
        values = frozenset(wanted)
        yield _Condition(name, lambda device: of(device) in values, of)


def _vdpa_type(device: SriovDevice) -> str:
    return device.vdpa.type if device.vdpa else ""


def candidates(pool: SriovPoolConfig, devices: Sequence[SriovDevice]) -> list[SriovDevice]:
    """Devices of a pool's type that pods may have at all."""
    return [each for each in devices if each.type is pool.device_type and not each.in_use]
