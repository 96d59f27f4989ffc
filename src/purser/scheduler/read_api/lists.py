"""Lists of what the state has, some at a time, in an order that stays: nodes by name, pods by namespace, name and uid.

A request names the last element that its client has, and gets what follows it now, whether that one is still there or
not: who goes on to the end sees each element that was there all the time once.
"""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from purser.core.state import STATE_VERSION
from purser.scheduler.read_api.documents import EncodedState, digest_of

MAX_LIMIT = 500
"""Elements of one answer."""
_SORTED_AT_ONCE = 512
"""Between two turns of the event loop: a millisecond's work."""

_NAME = r"[^/\x00-\x20]{1,253}"
_NODE_PLACE = re.compile(_NAME)
_POD_PLACE = re.compile(rf"({_NAME})/({_NAME}/{_NAME})")


class ListKind(StrEnum):
    """What is listed."""

    NODES = "nodes"
    GRANTS = "grants"
    WAITING = "waiting"


class Place(NamedTuple):
    """Where an element stands in a list."""

    namespace: str
    """Empty: it is a node."""
    key: str
    """A node's name; a pod's name and uid, for two pods of one name may both be known for a while."""

    def __str__(self) -> str:
        """As clients name it."""
        return f"{self.namespace}/{self.key}" if self.namespace else self.key


class _Names(msgspec.Struct, frozen=True, gc=False):
    """What of an encoded element says where it stands: a node has a name alone."""

    name: str = ""
    namespace: str = ""
    pod: str = ""
    uid: str = ""


_names = msgspec.json.Decoder(_Names)


def place_of(element: bytes) -> Place:
    """Where an element stands. It begins with the comma that separates it from the one before."""
    names = _names.decode(memoryview(element)[1:])
    return Place(names.namespace, names.name or f"{names.pod}/{names.uid}")


class ListQueryError(ValueError):
    """The message says what is wrong with a query, and what it has to be."""


class ListPart(NamedTuple):
    """Which part of a list is asked for."""

    limit: int
    after: Place | None
    """None: from its beginning."""

    def rest_of(self, namespace: str, elements: Sequence[bytes], found: int) -> Iterator[bytes]:
        """Of a namespace's elements those that follow: so many that it is known whether there are more than the limit.
        ``found``: how many others were found before."""
        start = 0
        if self.after is not None and namespace == self.after.namespace:
            start = bisect_right(elements, self.after, key=place_of)
        return islice(elements, start, start + self.limit + 1 - found)


def read_part(query: Mapping[str, str], kind: ListKind, namespace: str | None) -> ListPart:
    """What a query asks for. ``namespace``: whose elements alone are listed. Raises `ListQueryError`."""
    text, place = query.get("limit", str(MAX_LIMIT)), query.get("continue", "")
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT)) and 1 <= int(text) <= MAX_LIMIT):
        raise ListQueryError(f"limit must be a whole number from 1 to {MAX_LIMIT}")
    if not place:
        return ListPart(int(text), None)
    after: Place | None = None
    if kind is ListKind.NODES and _NODE_PLACE.fullmatch(place):
        after = Place("", place)
    elif kind is not ListKind.NODES and (found := _POD_PLACE.fullmatch(place)):
        after = Place(found[1], found[2])
    if after is None or (after.namespace and namespace not in (None, after.namespace)):
        raise ListQueryError("continue must be the value of continue in the previous response to the same path")
    return ListPart(int(text), after)


async def in_order(elements: Sequence[bytes]) -> Sequence[bytes]:
    """The same by their places."""
    parts: list[list[bytes]] = []
    for start in range(0, len(elements), _SORTED_AT_ONCE):
        parts.append(sorted(elements[start : start + _SORTED_AT_ONCE], key=place_of))
        await asyncio.sleep(0)
    if len(parts) <= 1:
        return parts[0] if parts else ()
    found: list[bytes] = []
    for each in merge(*parts, key=place_of):
        found.append(each)
        if len(found) % _SORTED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def encode_list(found: Sequence[bytes], limit: int, notes: Sequence[str]) -> EncodedState:
    """A document of the first so many elements."""
    rest = str(place_of(found[limit - 1])) if len(found) > limit else ""
    pieces = (
        b'{"items":[',
        *without_first_comma(found[:limit]),
        b'],"continue":%s,"notes":%s,"api_version":"%s"}'
        % (msgspec.json.encode(rest), msgspec.json.encode(notes), STATE_VERSION.encode()),
    )
    return EncodedState(f'"{(await digest_of(pieces)).hex()}"', pieces)


def without_first_comma(elements: Iterable[bytes]) -> Iterator[bytes]:
    """What follows the bracket of a list."""
    each = iter(elements)
    yield next(each, b",")[1:]
    yield from each
