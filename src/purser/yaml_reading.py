"""Untrusted YAML, within limits: see `purser.core.decoding`.

A YAML of a few lines can stand for gigabytes, by aliases of aliases, and its parser runs out of stack on what nests
deep. So a text is first gone through event by event, which takes neither: what its aliases would come to counts.
"""

from typing import Any

import yaml

from purser.core.decoding import MAX_DEPTH, as_bytes, size_error, unreadable

MAX_YAML_BYTES = 4 * 1024 * 1024
MAX_VALUES = 500_000
"""Keys, values, lists and objects, each alias counted as what it stands for."""

_INTEGER_LIMIT = 2**64
"""No number of JSON or of Go has more bits. Python's may be of any size, and then cannot be formatted in a message."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe types alone, and no endless numbers."""


def _construct_integer(loader: Any, node: Any) -> int:
    """Raises ValueError."""
    number: int = loader.construct_yaml_int(node)
    if not -_INTEGER_LIMIT < number < _INTEGER_LIMIT:
        raise ValueError(f"the number on line {node.start_mark.line + 1} has more than 64 bits")
    return number


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)


class _BigIntegersAsTextLoader(_Loader):
    """An endless number is its text."""


def _construct_integer_or_text(loader: Any, node: Any) -> int | str:
    try:
        return _construct_integer(loader, node)
    except ValueError:
        return str(node.value)


_BigIntegersAsTextLoader.add_constructor("tag:yaml.org,2002:int", _construct_integer_or_text)


def read_yaml(
    text: str | bytes, name: str, *, max_bytes: int = MAX_YAML_BYTES, big_integers_as_text: bool = False
) -> Any:
    """The one document, None for none.

    ``big_integers_as_text``: a number of more than 64 bits is its text, so that whoever reads entry by entry names the
    one that has it; else it is an error of the whole. Raises `purser.core.decoding.UnreadableError`, and nothing else.
    """
    data = _checked(text, name, max_bytes)
    try:
        return yaml.load(data, Loader=_BigIntegersAsTextLoader if big_integers_as_text else _Loader)
    except Exception as error:  # whatever a parser makes of a text that others wrote is that text's fault
        raise unreadable(name, _in_words(error)) from error


def read_all_yaml(text: str | bytes, name: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[Any]:
    """All documents. Raises `purser.core.decoding.UnreadableError`, and nothing else."""
    data = _checked(text, name, max_bytes)
    try:
        return list(yaml.load_all(data, Loader=_Loader))
    except Exception as error:  # as above
        raise unreadable(name, _in_words(error)) from error


def _checked(text: str | bytes, name: str, max_bytes: int) -> bytes:
    data = as_bytes(text, name)
    if len(data) > max_bytes:
        raise size_error(name, len(data), max_bytes)
    try:
        _count(data)
    except Exception as error:  # as above
        raise unreadable(name, _in_words(error)) from error
    return data


def _in_words(error: Exception) -> Exception:
    """The parser's error as one sentence, with the place in the text: its own takes several lines."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return ValueError(f"invalid YAML: {error}") if isinstance(error, yaml.YAMLError) else error
    mark = error.problem_mark
    return ValueError(f"invalid YAML at line {mark.line + 1}, column {mark.column + 1}: {error.problem}")


def _count(data: bytes) -> None:
    """Raises ValueError for what nests too deep, or stands for too much."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    """Of each list or object that has not ended: its anchor, and how many values began before it."""
    values = 0
    for event in yaml.parse(data, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"alias {event.anchor!r} is not defined, or contains itself")
            values += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, values))
            values += 1
            if len(open_) > MAX_DEPTH:
                raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
            if event.anchor is not None:
                sizes.pop(event.anchor, None)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = values - before
        elif isinstance(event, yaml.DocumentStartEvent):
            sizes.clear()
        if values > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values once aliases are expanded")
