"""Files of what kubectl printed: lists, or objects one after the other as ``kubectl get --watch -o json`` has them."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from purser.backtest.history import Omissions
from purser.backtest.objects import DATED_EVENTS, DATED_PODS, Dump, EventSeries, TimestampedEvent, TimestampedPod
from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.kube.codec import codec_of
from purser.kube.errors import DecodeError
from purser.kube.objects import Node
from purser.kube.pods import is_terminal
from purser.kube.resources import NODES, Resource

MAX_HISTORY_BYTES = 1 << 30
"""Of a file: a million events have some 800 MiB."""

MAX_OBJECTS = 4_000_000
"""Of all files."""


class HistoryError(ValueError):
    """A file that is none of these; the message names it, and says what is wrong with it."""


class _Document(msgspec.Struct, frozen=True):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


_document_reader = JsonReader(_Document, "the file", max_bytes=MAX_HISTORY_BYTES, max_depth=None)
_KINDS: dict[str, Resource[Any]] = {each.kind: each for each in (DATED_EVENTS, DATED_PODS, NODES)}
_VERSION_DIGITS = 20
"""Of a resource version: it has 64 bits."""

_DOCUMENT_START = re.compile(rb"^(?=\{)", re.MULTILINE)
"""Where kubectl begins an object: only what is outermost begins a line with a brace, indented or one object a line."""


def read_dumps(paths: Iterable[Path], omissions: Omissions) -> Dump:
    """The objects of all files; what cannot be read is counted. Raises `HistoryError`."""
    collected = _CollectedObjects(omissions)
    for path in paths:
        try:
            with path.open("rb") as file:
                data = file.read(MAX_HISTORY_BYTES + 1)
        except OSError as error:
            raise HistoryError(f"{path} cannot be read: {error.strerror or error}") from error
        collected.take(data, str(path))
    return collected.dump()


class _CollectedObjects:
    """Objects as files come: one that is there several times counts as it was last, in whatever order they come."""

    def __init__(self, omissions: Omissions) -> None:
        self._omissions = omissions
        self._events: dict[str, TimestampedEvent] = {}
        self._pods: dict[str, TimestampedPod] = {}
        self._nodes: dict[str, Node] = {}
        self._objects = 0
        self._lists_pods = False

    def take(self, data: bytes, name: str) -> None:
        if len(data) > MAX_HISTORY_BYTES:
            raise HistoryError(f"{name} is larger than {MAX_HISTORY_BYTES >> 20} MiB: split the file into parts")
        for place, item in enumerate(_items(data, name)):
            self._objects += 1
            if self._objects > MAX_OBJECTS:
                raise HistoryError(f"{name} has more than {MAX_OBJECTS} objects, including those of earlier files")
            try:
                self._add(item)
            except (UnreadableError, DecodeError) as error:
                self._omissions.add(
                    "unreadable objects, which were left out", f"object {place + 1} of {name}: {brief(error)}"
                )

    def _add(self, item: bytes | msgspec.Raw) -> None:
        resource = _KINDS.get(_document_reader.read(item).kind)
        if resource is None:
            return
        found = codec_of(resource).object(item)
        match found:
            case TimestampedEvent():
                key = found.metadata.uid or f"{found.metadata.namespace}/{found.metadata.name}"
                self._events[key] = _later_event(self._events.get(key), found)
            case TimestampedPod():
                self._lists_pods = True
                self._pods[found.metadata.uid] = _later_pod(self._pods.get(found.metadata.uid), found)
            case Node():
                self._nodes[found.metadata.name] = _later_node(self._nodes.get(found.metadata.name), found)

    def dump(self) -> Dump:
        return Dump(
            tuple(self._events.values()), tuple(self._pods.values()), tuple(self._nodes.values()), self._lists_pods
        )


def _items(data: bytes, name: str) -> Iterator[bytes | msgspec.Raw]:
    texts = [text for text in _DOCUMENT_START.split(data) if text.strip()]
    if not texts:
        raise HistoryError(f"{name} is empty: must be the output of kubectl get events,pods,nodes -A -o json")
    for place, text in enumerate(texts):
        try:
            document = _document_reader.read(text)
        except UnreadableError as error:
            if len(texts) == 1:
                wanted = "use the output of kubectl get events,pods,nodes -A -o json"
                raise HistoryError(f"{name}: {error}: {wanted}") from error
            yield text  # it is counted where it is read again
            continue
        if document.items is not None:
            yield from document.items
        elif not document.kind and place == 0:
            raise HistoryError(f"{name} is not a list of Kubernetes objects: kind is missing")
        else:
            yield text


def _later_event(known: TimestampedEvent | None, found: TimestampedEvent) -> TimestampedEvent:
    """An event only ever counts up, and keeps its first time."""
    return found if known is None or _occurrence_key(found) >= _occurrence_key(known) else known


def _occurrence_key(event: TimestampedEvent) -> tuple[int, str]:
    series = event.series or EventSeries()
    return max(event.count, series.count), max(event.last_timestamp or "", series.last_observed_time)


def _later_pod(known: TimestampedPod | None, found: TimestampedPod) -> TimestampedPod:
    """Files may come in any order; a pod does not come back from its end."""
    return known if known is not None and _age(known) > _age(found) else found


def _later_node(known: Node | None, found: Node) -> Node:
    """Resource versions of a cluster are decimal numbers that grow (KEP-5504); where one is not, whoever comes last."""
    return known if known is not None and _version(known) > _version(found) >= 0 else found


def _version(node: Node) -> int:
    text = node.metadata.resource_version
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _VERSION_DIGITS else -1


def _age(pod: TimestampedPod) -> tuple[bool, bool, bool]:
    return is_terminal(pod), bool(pod.metadata.deletion_timestamp), bool(pod.spec.node_name)
