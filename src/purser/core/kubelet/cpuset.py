"""Sets of CPUs as ints: bit n stands for CPU n; as text the kernel's list format (``0-3,8,10-11``)."""

from collections.abc import Iterable

from purser.core.kubelet.masks import mask_of, nodes_of

CpuSet = int

MAX_CPU = 8191
"""The largest CPU number that Linux can be built for; a longer list is a mistake."""


def cpuset_of(cpus: Iterable[int]) -> CpuSet:
    """The set with these CPUs."""
    return mask_of(cpus)


def cpus_of(cpus: CpuSet) -> tuple[int, ...]:
    """The CPUs of a set, ascending."""
    return nodes_of(cpus)


def parse_cpuset(text: str) -> CpuSet:
    """A set from its list format. Raises ValueError that names the bad part."""
    cpus = 0
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            low, high = -1, -1
        if not 0 <= low <= high <= MAX_CPU:
            raise ValueError(f"invalid value {part!r} in CPU list {text!r}: must be numbers and ranges such as 0-3,8")
        cpus |= (1 << (high + 1)) - (1 << low)
    return cpus


def format_cpuset(cpus: CpuSet) -> str:
    """The list format of a set; empty for none."""
    parts = []
    members = cpus_of(cpus)
    start = 0
    for place, cpu in enumerate(members):
        if place + 1 == len(members) or members[place + 1] != cpu + 1:
            first = members[start]
            parts.append(str(cpu) if first == cpu else f"{first}-{cpu}")
            start = place + 1
    return ",".join(parts)
