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
_SORTED_AT_ONCE = 2048
"""Between two turns of the event loop: a millisecond's work."""

_NAME = r"[^/\x00-\x20]{1,253}"
_NODE_PLACE = re.compile(_NAME)
_POD_PLACE = re.compile(rf"({_NAME})/({_NAME}/{_NAME})")


class ListKind(StrEnum):
    """What is listed."""

    NODES = "nodes"
    GRANTS = "grants"
    WAITING = "waiting"


class Element(NamedTuple):
    """A part of the state, encoded."""

    key: str
    """By which it is found again: of a node its name, of a pod `pod_key`."""
    text: bytes
    """It begins with the comma that separates it from the one before."""


class Place(NamedTuple):
    """Where an element stands in a list."""

    namespace: str
    """Empty: it is a node."""
    key: str


class ListQueryError(ValueError):
    """The message says what is wrong with a query, and what it has to be."""


class ListPart(NamedTuple):
    """Which part of a list is asked for."""

    limit: int
    after: Place | None
    """None: from its beginning."""

    def rest_of(self, namespace: str, elements: Sequence[Element], found: int) -> Iterator[Element]:
        """Of a namespace's elements those that follow: so many that it is known whether there are more than the limit.
        ``found``: how many others were found before."""
        start = 0
        if self.after is not None and namespace == self.after.namespace:
            start = bisect_right(elements, self.after.key, key=lambda each: each.key)
        return islice(elements, start, start + self.limit + 1 - found)


def pod_key(name: str, uid: str) -> str:
    """Two pods of one name may both be known for a while."""
    return f"{name}/{uid}"


def place_of(namespace: str, element: Element) -> str:
    """What a client names to go on behind an element."""
    return f"{namespace}/{element.key}" if namespace else element.key


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
        raise ListQueryError("continue must be the value of continue in the answer before, of the same path")
    return ListPart(int(text), after)


async def in_order(elements: Sequence[Element]) -> Sequence[Element]:
    """The same by their keys."""
    parts: list[list[Element]] = []
    for start in range(0, len(elements), _SORTED_AT_ONCE):
        parts.append(sorted(elements[start : start + _SORTED_AT_ONCE]))
        await asyncio.sleep(0)
    if len(parts) <= 1:
        return parts[0] if parts else ()
    found: list[Element] = []
    for each in merge(*parts):
        found.append(each)
        if len(found) % _SORTED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def encode_list(
    found: Sequence[Element], places: Sequence[str], limit: int, notes: Sequence[str]
) -> EncodedState:
    """A document of the first so many elements; ``places``: of each of them."""
    rest = places[limit - 1] if len(found) > limit else ""
    pieces = (
        b'{"items":[',
        *without_first_comma(texts(found[:limit])),
        b'],"continue":%s,"notes":%s,"api_version":"%s"}'
        % (msgspec.json.encode(rest), msgspec.json.encode(notes), STATE_VERSION.encode()),
    )
    return EncodedState(f'"{(await digest_of(pieces)).hex()}"', pieces)


def texts(elements: Iterable[Element]) -> Iterator[bytes]:
    """As they are encoded."""
    return (each.text for each in elements)


def without_first_comma(elements: Iterable[bytes]) -> Iterator[bytes]:
    """What follows the bracket of a list."""
    each = iter(elements)
    yield next(each, b",")[1:]
    yield from each
