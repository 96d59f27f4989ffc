"""Device ids in few characters: names that end in a number are written once with the ranges of their numbers.

``GPU-1::0`` to ``GPU-1::9`` become ``("GPU-1::", "0-9")``; an id without such a number stands alone, its ranges empty.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

IdList = tuple[tuple[str, str], ...]
"""(prefix, ranges), ascending."""

_NUMBERED_ID = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})", re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def compact_ids(ids: Collection[str]) -> IdList:
    """The ids as a list; order and repetitions are lost."""
    numbers: dict[str, list[int]] = {}
    plain = []
    for id_ in set(ids):
        found = _NUMBERED_ID.fullmatch(id_)
        if found is None:
            plain.append((id_, ""))
        else:
            numbers.setdefault(found[1], []).append(int(found[2]))
    return tuple(sorted([*plain, *((prefix, _ranges(sorted(of))) for prefix, of in numbers.items())]))


def expand_ids(ids: IdList, limit: int) -> tuple[str, ...]:
    """The ids of a list. Raises ValueError for what is not a range, and for more than ``limit`` ids."""
    found: list[str] = []
    for prefix, ranges in ids:
        for first, last in _parse_ranges(ranges) if ranges else ():
            if len(found) + last - first >= limit:
                raise ValueError(f"too many device IDs at {prefix!r}")
            found.extend(f"{prefix}{number}" for number in range(first, last + 1))
        if not ranges:
            found.append(prefix)
    if len(found) > limit:
        raise ValueError("too many device IDs")
    return tuple(found)


def _ranges(numbers: Sequence[int]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(numbers))


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -1
    for number in numbers:
        if number != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = number
        last = number
    if first >= 0:
        yield first, last


def _parse_ranges(ranges: str) -> Iterator[tuple[int, int]]:
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise ValueError(f"{part!r} is not a range of device numbers: must be a range such as 0-7")
        yield int(found[1]), int(found[2] or found[1])
