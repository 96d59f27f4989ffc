"""Sets of fields, as server-side apply keeps them: who set what. Pure.

A path is a tuple of FieldsV1 elements: `f:<field>`, `k:{"name":"x"}` for an item of a keyed list, `v:"x"` for a
set's member. A set of paths is a plain frozenset. Written, it becomes the trie of FieldsV1, where "." marks an
inner path as a member. Source: sigs.k8s.io/structured-merge-diff, fieldpath and typed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from . import jsonio
from .errors import Obj
from .schema import Schema

Path = tuple[str, ...]
Paths = frozenset[Path]
EMPTY: Paths = frozenset()


def to_fields_v1(paths: Iterable[Path]) -> Obj:
    """The trie, in sorted order."""
    trie: Obj = {}
    ordered = sorted(paths)
    for path, following in zip_longest(ordered, ordered[1:], fillvalue=()):
        node = trie
        for element in path:
            node = node.setdefault(element, {})
        if following[: len(path)] == path:  # others lead through it, and come right after it
            node["."] = {}
    return trie


def from_fields_v1(trie: Obj) -> Paths:
    """The paths of a trie; unknown shapes read as empty."""
    found: list[Path] = []
    _collect_paths(trie, (), found)
    return frozenset(found)


def _collect_paths(node: Any, prefix: Path, found: list[Path]) -> None:
    if not isinstance(node, dict):
        return
    if not node and prefix:
        found.append(prefix)
    for element, child in node.items():
        if element == ".":
            found.append(prefix)
        else:
            _collect_paths(child, (*prefix, element), found)


def element_key(item: Any, schema: Schema) -> str:
    """Identity of an item in an associative list."""
    if schema.list_type == "set":
        return "v:" + jsonio.encode(item).decode()
    keys = {key: item.get(key, _key_default(schema, key)) for key in sorted(schema.list_keys)}
    present = {key: value for key, value in keys.items() if value is not None}
    return "k:" + jsonio.encode(present).decode()


def _key_default(schema: Schema, key: str) -> Any:
    """The API defaults this one key field; without it a port could not be identified before defaulting."""
    return "TCP" if key == "protocol" else None


def items_by_key(items: list[Any], schema: Schema) -> dict[str, Any]:
    """Items of an associative list by identity; later duplicates win."""
    usable = (item for item in items if schema.list_type == "set" or isinstance(item, dict))
    return {element_key(item, schema): item for item in usable}


def is_leaf(value: Any, schema: Schema) -> bool:
    """Owned as a whole: scalars, atomic maps and lists, empty containers."""
    if isinstance(value, dict):
        return schema.atomic or not value
    if isinstance(value, list):
        return not schema.associative or not value
    return True


def _is_indivisible(value: Any, schema: Schema) -> bool:
    """Compared as a whole; unlike a leaf, an empty container is not: what appears in it is an addition."""
    return schema.atomic if isinstance(value, dict) else not isinstance(value, list) or not schema.associative


def children(value: Any, schema: Schema) -> Iterator[tuple[str, Any, Schema]]:
    """Element, value and type of what a non-leaf holds."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield "f:" + name, child, schema.child(name)
    else:
        for element, item in items_by_key(value, schema).items():
            yield element, item, schema.item()


def leaves(value: Any, schema: Schema, prefix: Path = ()) -> Iterator[Path]:
    """What an applied configuration sets: leaves, and the items of keyed lists themselves."""
    for element, child, sub in children(value, schema):
        path = (*prefix, element)
        if not element.startswith("f:"):
            yield path
        if is_leaf(child, sub):
            yield path
        else:
            yield from leaves(child, sub, path)


@dataclass(slots=True)
class Difference:
    """Paths that differ between two objects; containers that appear or vanish count themselves."""

    changed: set[Path] = field(default_factory=set)
    """Added or with another value."""
    removed: set[Path] = field(default_factory=set)


def compare(before: Any, after: Any, schema: Schema) -> Difference:
    """What changed, field by field."""
    difference = Difference()
    _compare(before, after, schema, (), difference)
    return difference


def _compare(before: Any, after: Any, schema: Schema, path: Path, into: Difference) -> None:
    if before == after:
        return
    if _is_indivisible(before, schema) or _is_indivisible(after, schema) or type(before) is not type(after):
        _replace(before, after, schema, path, into)
        return
    old = {element: (value, sub) for element, value, sub in children(before, schema)}
    new = {element: (value, sub) for element, value, sub in children(after, schema)}
    for element, (value, sub) in new.items():
        where = (*path, element)
        if element in old:
            _compare(old[element][0], value, sub, where, into)
        else:
            into.changed.update(everything(value, sub, where))
    for element in old.keys() - new.keys():
        value, sub = old[element]
        into.removed.update(everything(value, sub, (*path, element)))


def _replace(before: Any, after: Any, schema: Schema, path: Path, into: Difference) -> None:
    """One of the two is a leaf: the path changed; what a container held came or went with it."""
    into.changed.update(everything(after, schema, path))
    if not is_leaf(before, schema):
        into.removed.update(set(everything(before, schema, path)) - into.changed)


def everything(value: Any, schema: Schema, path: Path) -> Iterator[Path]:
    """The path and all paths below it; a struct that is not a list item is nothing beyond its fields."""
    if is_leaf(value, schema) or not (schema.properties and path[-1].startswith("f:")):
        yield path
    if not is_leaf(value, schema):
        for element, child, sub in children(value, schema):
            yield from everything(child, sub, (*path, element))


def path_text(path: Path) -> str:
    """`.spec.containers[name="a"].image`, as conflict messages write a path."""
    return "".join(_dotted(element) for element in path)


def _dotted(element: str) -> str:
    mark, text = element[0], element[2:]
    if mark == "f":
        return "." + text
    if mark == "k":
        pairs = jsonio.decode(text.encode()).items()
        return "[" + ",".join(f"{key}={jsonio.encode(value).decode()}" for key, value in pairs) + "]"
    return f"[={text}]"
