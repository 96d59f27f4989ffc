"""The families that Purser serves: the package's own file, read once."""

import tomllib
from collections.abc import Collection, Iterator
from pkgutil import get_data
from string import Formatter

import msgspec

from purser.core.decoding import UnreadableError, convert_value, text_of, unreadable
from purser.core.device.resources import is_gpu_resource
from purser.core.vendors.family import RECORD_FIELDS, CountedBy, DeviceFamily, Encoding, FamilyFile

MAX_FAMILIES_BYTES = 256 * 1024
_NAME = "families.toml"


def read_families(data: bytes) -> tuple[DeviceFamily, ...]:
    """The families of a file, each with the records that all have. Raises `UnreadableError`."""
    text = text_of(data, _NAME, max_bytes=MAX_FAMILIES_BYTES)
    try:
        value = tomllib.loads(text)
    except Exception as error:  # whatever a parser makes of a text is that text's fault
        raise unreadable(_NAME, error) from error
    file = convert_value(value, FamilyFile, _NAME)
    families = tuple(
        msgspec.structs.replace(each, records={**file.common.records, **each.records}) for each in file.families
    )
    for problem in _problems(families):
        raise UnreadableError(f"{_NAME} {problem}")
    return families


def _problems(families: tuple[DeviceFamily, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for family in families:
        for resource in family.resources:
            if is_gpu_resource(resource):
                yield f"assigns {resource}, which is reserved for NVIDIA's GPUs, to {family.name}"
            elif resource in seen:
                yield f"assigns {resource} twice, the second time to {family.name}"
            seen.add(resource)
        yield from _problems_of(family)


def _problems_of(family: DeviceFamily) -> Iterator[str]:
    if (family.register is None) == (family.capacity is None):
        found = "neither" if family.register is None else "both"
        yield f"must set either register or capacity for {family.name}, but sets {found}"
    if family.register is not None and (family.register.encoding is Encoding.PROFILES) != bool(family.register.id):
        yield f"must set register.id for {family.name} if, and only if, its devices are registered by profile"
    by_cores = family.capacity is not None and family.capacity.counted_by is CountedBy.CORES
    if by_cores and family.cores is None:
        yield f"counts devices of {family.name} by cores but does not name a resource for cores"
    if family.capacity is not None and family.memory is None and not family.capacity.memory_mib:
        yield f"does not say how much memory a device of {family.name} has"
    if list(family.templates) != sorted(family.templates, key=lambda each: each.memory_mib):
        yield f"lists templates of {family.name} that are not sorted by memory"
    if family.cores is not None and family.cores.numbered and (family.capacity is None or family.memory is not None):
        yield f"sets numbered cores for {family.name}, whose devices are registered or share memory"
    for value in (*family.records.values(), *family.several_records.values(), *family.core_records.values()):
        for _, field, _, _ in Formatter().parse(value):
            if field is not None and field not in RECORD_FIELDS:
                known = ", ".join(RECORD_FIELDS)
                yield f"has unknown field {{{field}}} in a record of {family.name}: must be one of {known}"


FAMILIES = read_families(get_data(__package__, _NAME) or b"")

FAMILY_NAMES = tuple(family.name for family in FAMILIES)


def families_of(names: Collection[str]) -> tuple[DeviceFamily, ...]:
    """Those of these names."""
    return tuple(family for family in FAMILIES if family.name in names)


BY_RESOURCE = {family.resource: family for family in FAMILIES}
"""By the resource that pods name devices with, under which they are listed."""

BY_WORD = {resource: family for family in FAMILIES for resource in family.resources}
"""By every resource of every family."""
