"""How much a container asks for of another vendor's family, by the rules that the family's entry picks.

Meanings are those of HAMi v2.10 (``GenerateResourceRequests`` and ``MutateAdmission`` of ``pkg/device/*``). Where HAMi
lets a pod run without devices, or clamps a number without a word, it is refused with a sentence instead.
"""

import msgspec

from purser.core.device.slicing import SliceAsk
from purser.core.dialects.dialect import MAX_DEVICES_ASKED, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import MAX_DEVICE_MEMORY_MIB, amount, in_bytes, ranged_number
from purser.core.model import WHOLE_PERCENT
from purser.core.pod.manifest import ContainerSpec
from purser.core.vendors.family import DeviceFamily, MemoryResource
from purser.core.wording import counted


class VendorAmounts(msgspec.Struct, frozen=True):
    """What one container asks for, of each device."""

    count: int = 1
    memory_mib: int | None = None
    """None: all, or as much as the compute is of a device."""
    cores_percent: int = 0
    slices: SliceAsk | None = None
    by_cores: bool = False
    """It asks for some of a device's numbered cores."""

    @property
    def memory_percent(self) -> int | None:
        """As `DeviceRequest.memory_percent`."""
        if self.memory_mib is not None:
            return None
        return self.cores_percent if self.by_cores else WHOLE_PERCENT


def asks_for_cores(family: DeviceFamily, container: ContainerSpec) -> bool:
    """Whether a container names numbered cores, in sense or nonsense."""
    cores = family.cores
    return cores is not None and cores.numbered and asks_for(container, cores.resource)


def read_amounts(family: DeviceFamily, container: ContainerSpec, is_soft: bool, problems: Problems) -> VendorAmounts:
    """What a container asks for; what makes no sense is noted. ``is_soft``: its pod asks for `SoftSplit`."""
    if family.has_profiles:
        return VendorAmounts(memory_mib=0, slices=_slices(family, container, problems))
    if family.cores is not None and asks_for_cores(family, container):
        return _numbered(family, container, problems)
    count = _count(family, container, problems)
    if family.soft_split is not None and is_soft:
        return _soft_amounts(family, container, count, problems)
    memory_mib = _memory_mib(family, container, count, problems)
    return VendorAmounts(count, memory_mib, _cores_percent(family, container, count, memory_mib, problems))


def _count(family: DeviceFamily, container: ContainerSpec, problems: Problems) -> int:
    if not asks_for(container, family.resource):
        named = next((each for each in family.resources if asks_for(container, each)), family.resource)
        problems.add(
            f'container "{container.name}" asks for {named} but not for {family.resource}: '
            f"set {family.resource} to the number of devices"
        )
        return 1
    count = amount(container, family.resource, 1, MAX_DEVICES_ASKED, "a number of devices", problems) or 1
    if count < family.fewest:
        return family.fewest
    if family.counts and count not in family.counts:
        allowed = ", ".join(map(str, family.counts))
        problems.add(
            f'container "{container.name}" asks for {count} linked {family.name} '
            f"{'device' if count == 1 else 'devices'}: the number must be one of {allowed}"
        )
    return count


def _numbered(family: DeviceFamily, container: ContainerSpec, problems: Problems) -> VendorAmounts:
    """Numbered cores: some of one device, or all of one or several (HAMi's ``splitCoreRequest``)."""
    cores = family.cores
    if cores is None:
        return VendorAmounts()
    if asks_for(container, family.resource):
        problems.add(
            f'container "{container.name}" asks for both {cores.resource} and {family.resource}: '
            f"use either {cores.resource}, which counts cores, or {family.resource}, which counts whole devices"
        )
    each, most = cores.per_device, MAX_DEVICES_ASKED * cores.per_device
    units = amount(container, cores.resource, 1, most, "a number of cores", problems) or 1
    if units > each and units % each:
        problems.add(
            f'container "{container.name}": {cores.resource} "{units}" is not a number of whole devices: must be at '
            f"most {each}, or a multiple of {each}"
        )
    percent = min(units * WHOLE_PERCENT // each, WHOLE_PERCENT)
    return VendorAmounts(-(-units // each), None, percent, by_cores=percent < WHOLE_PERCENT)


def _slices(family: DeviceFamily, container: ContainerSpec, problems: Problems) -> SliceAsk:
    """A profile by its slices, or by what it must have."""
    slices = amount(container, family.resource, 0, MAX_DEVICES_ASKED, "a number of slices", problems) or 0
    memory, cores = family.memory, family.cores
    named = [each.resource for each in (memory, cores) if each is not None and asks_for(container, each.resource)]
    if slices and named:
        problems.add(
            f'container "{container.name}" asks for both {family.resource} and {named[0]}: '
            f"use either {family.resource}, which names a profile, or {named[0]}, which states what the profile "
            "must have"
        )
    unit = "a number of GiB or MiB"
    asked = 0 if memory is None else amount(container, memory.resource, 0, MAX_DEVICE_MEMORY_MIB, unit, problems)
    percent = 0 if cores is None else amount(container, cores.resource, 0, WHOLE_PERCENT, "a percentage", problems)
    return SliceAsk(slices, asked or 0, percent or 0)


def _soft_amounts(family: DeviceFamily, container: ContainerSpec, count: int, problems: Problems) -> VendorAmounts:
    """Shares of any size, and of any number of devices."""
    memory, soft = family.memory, family.soft_split
    most = family.templates_up_to_mib or MAX_DEVICE_MEMORY_MIB
    mib = None if memory is None else amount(container, memory.resource, 0, most, "a number of MiB", problems)
    percent = None if soft is None else amount(container, soft.cores, 0, WHOLE_PERCENT, "a percentage", problems)
    return VendorAmounts(count, mib or None, percent or 0)


def _memory_mib(family: DeviceFamily, container: ContainerSpec, count: int, problems: Problems) -> int | None:
    """Of each device; None: all."""
    memory = family.memory
    if memory is None:
        return None
    if memory.or_bytes and (mib := in_bytes(container, memory.resource, problems)) is not None:
        return mib
    most = MAX_DEVICE_MEMORY_MIB // memory.unit_mib
    unit = "a number of MiB" if memory.unit_mib == 1 else f"a number of {memory.unit_mib} MiB units"
    units = amount(container, memory.resource, 0, most, unit, problems)
    if not units:
        return None
    if count > 1 and memory.whole:
        _check_sum(container, memory.resource, units, memory.whole * count, count, problems)
        return None
    if memory.allowed and units not in memory.allowed:
        allowed = ", ".join(map(str, memory.allowed))
        problems.add(
            f'container "{container.name}": {memory.resource} "{units}" is not a supported size: must be '
            f"one of {allowed}"
        )
    share = None if units == memory.whole else _size(family, container, memory, units, problems)
    if share is not None and count > family.fewest and family.several_are_whole:
        problems.add(
            f'container "{container.name}" asks for a share of each of {count} devices, but '
            f"a container can have several devices of {family.name} only if they are whole: remove {memory.resource}"
        )
    return share


def _size(
    family: DeviceFamily, container: ContainerSpec, memory: MemoryResource, units: int, problems: Problems
) -> int | None:
    mib, most = units * memory.unit_mib, family.templates_up_to_mib
    if not family.templates:
        return mib
    if mib > most:
        problems.add(
            f'container "{container.name}": {memory.resource} "{units}" is out of range: must be at most {most}'
        )
    template = family.template_for(mib)
    return None if template is None else template.memory_mib


def _cores_percent(
    family: DeviceFamily, container: ContainerSpec, count: int, memory_mib: int | None, problems: Problems
) -> int:
    soft, cores = family.soft_split, family.cores
    if soft is not None and asks_for(container, soft.cores):
        problems.add(
            f'container "{container.name}": {soft.cores} applies only to pods that use soft splitting: remove it, '
            f"or annotate the pod with {soft.annotation}: {soft.value}"
        )
    if cores is None:
        template = None if memory_mib is None else family.template_for(memory_mib)
        return WHOLE_PERCENT if memory_mib is None else template.cores_percent if template is not None else 0
    if cores.numbered:
        return WHOLE_PERCENT
    in_sum = (cores.whole or cores.of_several) if count > 1 else 0
    most = in_sum * count or cores.per_device
    wanted = f"from 0 to {most} ({cores.per_device} is one whole device)"
    units = ranged_number(container, cores.resource, 0, most, wanted, problems)
    if in_sum:
        if units is not None:
            _check_sum(container, cores.resource, units, most, count, problems)
        units = in_sum
    if units is None:
        return WHOLE_PERCENT if cores.whole and memory_mib is None else cores.unset
    return units * WHOLE_PERCENT // cores.per_device


def _check_sum(
    container: ContainerSpec, resource: str, units: int, wanted: int, count: int, problems: Problems
) -> None:
    if units != wanted:
        problems.add(
            f'container "{container.name}": {resource} "{units}" does not match {counted(count, "whole device")}: '
            f"remove it, or set it to {wanted}"
        )
