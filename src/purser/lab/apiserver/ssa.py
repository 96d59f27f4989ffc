"""Server-side apply's two operations on values: merge a configuration in, take given-up fields out. Pure.

Source of the rules: sigs.k8s.io/structured-merge-diff, merge.Updater.
"""

from typing import Any

from . import jsonio
from .errors import Obj
from .fieldset import Path, Paths, children, element_key, items_by_key
from .schema import Schema


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """`live` with everything that `config` says; granular maps and keyed lists merge, the rest is replaced."""
    if isinstance(live, dict) and isinstance(config, dict) and not schema.atomic:
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(live[name], value, schema.child(name)) if name in live else jsonio.deep_copy(value)
        return merged
    if isinstance(live, list) and isinstance(config, list) and schema.associative:
        return _merge_list(live, config, schema)
    return jsonio.deep_copy(config)


def _merge_list(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    wanted = items_by_key(config, schema)
    merged = []
    for item in live:
        identity = element_key(item, schema)
        merged.append(merge(item, wanted.pop(identity), schema.item()) if identity in wanted else item)
    return merged + [jsonio.deep_copy(item) for item in wanted.values()]


def remove(obj: Obj, gone: Paths, kept: Paths, schema: Schema) -> Obj:
    """Take out the fields at `gone`, except what leads to a path in `kept`; containers this empties go too."""
    protected = {path[:length] for path in kept for length in range(1, len(path) + 1)}
    protected |= {key for path in protected for key in _key_fields(path)}
    doomed = {path for path in gone if path not in protected}
    if not doomed:
        return obj
    parents = {path[:length] for path in doomed for length in range(len(path) + 1)}
    return _remove(obj, schema, (), doomed, parents, protected)  # type: ignore[no-any-return]


def _key_fields(path: Path) -> list[Path]:
    """An item that stays keeps the fields that identify it."""
    element = path[-1]
    return [(*path, "f:" + name) for name in jsonio.decode(element[2:].encode())] if element.startswith("k:") else []


def _remove(value: Any, schema: Schema, path: Path, doomed: set[Path], touched: set[Path], protected: set[Path]) -> Any:
    if isinstance(value, dict):
        kept: Obj = {}
        for element, child, sub in children(value, schema):
            where = (*path, element)
            if where in doomed:
                continue
            child = _remove(child, sub, where, doomed, touched, protected) if where in touched else child
            if child not in ({}, []) or where not in touched or where in protected:
                kept[element[2:]] = child
        return kept
    if isinstance(value, list) and schema.associative:
        items = ((element_key(item, schema), item) for item in value)
        kept_items = [((*path, element), item) for element, item in items if (*path, element) not in doomed]
        return [_remove(item, schema.item(), where, doomed, touched, protected) for where, item in kept_items]
    return value
