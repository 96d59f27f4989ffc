"""Writes what follows from the data of other vendors' devices: its JSON schema, and docs/vendors.md.

python scripts/generate_vendors.py [REPOSITORY]
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from purser.core.vendors.catalogue import FAMILIES
from purser.core.vendors.family import RECORD_FIELDS, DeviceFamily, FamilyFile

ROOT = Path(__file__).parents[1]
SCHEMA = "src/purser/core/vendors/families.schema.json"
PAGE = "docs/vendors.md"
_MARK = "<!-- Below: made by scripts/generate_vendors.py of src/purser/core/vendors/families.toml. -->\n"


def main(root: Path) -> None:
    (root / SCHEMA).write_text(schema())
    page = root / PAGE
    page.write_text(page.read_text().partition(_MARK)[0] + tables())


def schema() -> str:
    made: dict[str, Any] = msgspec.json.schema(FamilyFile)
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Families of devices"}
    return json.dumps({**about, **made}, indent=1) + "\n"


def tables() -> str:
    lines = [_MARK, "## Families and their resources", ""]
    lines += ["| family | devices | memory | compute | a container that names none of these |", "|---|---|---|---|---|"]
    lines += [
        f"| {family.name} | {_number(family)} | {_memory(family)} | {_cores(family)} | {_unset(family)} |"
        for family in FAMILIES
    ]
    lines += [
        "",
        "## Templates",
        "",
        "A share is the smallest of these with as much memory as the container asks for.",
        "",
    ]
    lines += ["| family | templates, with MiB |", "|---|---|"]
    for family in FAMILIES:
        if family.templates:
            lines.append(
                f"| {family.name} | {', '.join(f'{each.name} {each.memory_mib}' for each in family.templates)} |"
            )
    lines += ["", "## Annotations of pods that choose devices", "", "| family | annotations |", "|---|---|"]
    lines += [
        f"| {family.name} | {', '.join(f'`{each}`' for each in family.pod_annotations)} |"
        for family in FAMILIES
        if family.pod_annotations
    ]
    lines += [
        "",
        "## What a node says it has, and its lock",
        "",
        "| family | devices are read from | lock |",
        "|---|---|---|",
    ]
    lines += [
        f"| {family.name} | {_source(family)} | {f'`{family.lock.annotation}`' if family.lock else ''} |"
        for family in FAMILIES
    ]
    lines += ["", "## What the Binding brings for the plugin", "", "| family | annotations |", "|---|---|"]
    lines += [f"| {family.name} | {', '.join(f'`{name}`' for name in family.all_records)} |" for family in FAMILIES]
    lines += ["", "In the data, braces in a value stand for:", "", "| field | what |", "|---|---|"]
    lines += [f"| `{{{name}}}` | {about} |" for name, about in RECORD_FIELDS.items()]
    return "\n".join(lines) + "\n"


def _number(family: DeviceFamily) -> str:
    if family.has_profiles:
        return f"`{family.resource}`: the slices of a profile of one device"
    counts = f": {', '.join(map(str, family.counts))}" if family.counts else ""
    return f"`{family.resource}`{counts}"


def _memory(family: DeviceFamily) -> str:
    memory = family.memory
    if memory is None:
        return ""
    if family.has_profiles:
        return f"`{memory.resource}`: GiB, or MiB, that the profile has at least"
    unit = "MiB" if memory.unit_mib == 1 else f"units of {memory.unit_mib} MiB"
    some = f", {', '.join(map(str, memory.allowed))}" if memory.allowed else ""
    in_bytes = ", or bytes with a suffix" if memory.or_bytes else ""
    return f"`{memory.resource}`: {unit}{some}{in_bytes}"


def _cores(family: DeviceFamily) -> str:
    cores = family.cores
    if family.soft_split is not None:
        return f"`{family.soft_split.cores}`: percent, of the soft split"
    if cores is None:
        return ""
    if cores.numbered:
        return f"`{cores.resource}`: cores, in place of devices"
    unit = "percent" if cores.per_device == 100 else f"1 to {cores.per_device}"
    return f"`{cores.resource}`: {unit}{', that the profile has at least' if family.has_profiles else ''}"


def _unset(family: DeviceFamily) -> str:
    if family.has_profiles:
        return "is none of it"
    if family.cores is None or family.cores.unset or family.cores.whole:
        return "has whole devices"
    return "has all of the memory, and no limit of compute"


def _source(family: DeviceFamily) -> str:
    if family.register is not None:
        return f"annotation `{family.register.annotation}`"
    counted = (
        family.cores.resource
        if family.capacity and family.capacity.counted_by == "cores" and family.cores
        else family.resource
    )
    return f"the node's capacity of `{counted}`"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
