"""Sections of NVIDIA's operator that Purser does not have: one that is on is said first, all that are off in one line.

Which of them are on follows from several switches: without `sandboxWorkloads.enabled` most others do nothing, whatever
they say; they are on in a stock install.
"""

from collections.abc import Callable

import msgspec

from purser.operator.importing.sections import Raw
from purser.operator.importing.telling import Losses, Rank, at, says_something

_MACHINES = "virtual machines with GPUs are not supported"
_VGPU = "vGPU hosts are not supported"
_SECRET = "confidential computing is not supported"
_KATA = "Kata is not supported"


class _Absent(msgspec.Struct, frozen=True):
    place: str
    why: str
    is_on: Callable[[Raw], bool]


def _switch(given: Raw, section: str) -> bool:
    return at(given, f"{section}.enabled") is True


def _sandbox(given: Raw) -> bool:
    return _switch(given, "sandboxWorkloads")


def _with_sandbox(section: str, mode: str = "") -> Callable[[Raw], bool]:
    def is_on(given: Raw) -> bool:
        present = at(given, "sandboxWorkloads.mode") or "kubevirt"
        return _sandbox(given) and _switch(given, section) and mode in ("", present)

    return is_on


def _never(_: Raw) -> bool:
    return False


_SECTIONS = (
    _Absent("sandboxWorkloads", _MACHINES, _sandbox),
    _Absent("vfioManager", _MACHINES, _with_sandbox("vfioManager")),
    _Absent("sandboxDevicePlugin", _MACHINES, _with_sandbox("sandboxDevicePlugin", "kubevirt")),
    _Absent("validator.vfioPCI", _MACHINES, _sandbox),
    _Absent("vgpuManager", _VGPU, _with_sandbox("vgpuManager")),
    _Absent("vgpuDeviceManager", _VGPU, _with_sandbox("vgpuDeviceManager")),
    _Absent("validator.vgpuManager", _VGPU, _sandbox),
    _Absent("validator.vgpuDevices", _VGPU, _sandbox),
    _Absent("kataSandboxDevicePlugin", _KATA, _with_sandbox("kataSandboxDevicePlugin", "kata")),
    _Absent("ccManager", _SECRET, _with_sandbox("ccManager", "kata")),
    _Absent("kataManager", _KATA, _never),  # NVIDIA's operator does nothing with it any more
)


def without_absent(given: Raw, lost: Losses) -> Raw:
    """The spec without these sections; of each that says anything it is told what becomes of it."""
    off, rest = [], given
    for each in _SECTIONS:
        section = at(given, each.place)
        if not isinstance(section, dict):
            continue  # of another type, or not there: it is told as any field that nobody knows
        if each.is_on(given) and says_something(section):
            lost.lose_whole(each.place, f"IT IS ON, and Purser does not support it: {each.why}", Rank.FIRST)
        elif says_something(section):
            off.append(f"{lost.prefix}.{each.place}")
        rest = _without(rest, each.place)
    if off:
        lost.note(", ".join(off), "off, and not supported by Purser", Rank.OFF)
    return rest


def _without(given: Raw, place: str) -> Raw:
    name, _, rest = place.partition(".")
    if not rest:
        return {key: value for key, value in given.items() if key != name}
    return {**given, name: _without(given[name], rest)}
