"""Strategic merge patch: a merge patch that knows which lists are keyed (apimachinery, util/strategicpatch). Pure.

Directives: `$patch: replace|delete|merge` in an object or list item, `$deleteFromPrimitiveList/<field>`,
`$setElementOrder/<field>` and `$retainKeys`, as kubectl sends them.
"""

import copy
from typing import Any

from .errors import Obj, bad_request
from .schema import Schema

_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_patch(target: Obj, patch: Obj, schema: Schema) -> Obj:
    """`target` with `patch` merged in; raises 400 for directives that are not understood."""
    directive = patch.get("$patch")
    if directive == "replace":
        return copy.deepcopy(_plain(patch))
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unable to process the patch: unknown $patch directive {directive!r}")
    result = _retained(target, patch)
    for key, value in _plain(patch).items():
        _merge_field(result, key, value, schema.child(key))
    _delete_primitives(result, patch)
    _order(result, patch, schema)
    return result


def _plain(patch: Obj) -> Obj:
    return {key: value for key, value in patch.items() if not key.startswith("$")}


def _retained(target: Obj, patch: Obj) -> Obj:
    keep = patch.get("$retainKeys")
    return {key: value for key, value in target.items() if keep is None or key in keep}


def _merge_field(result: Obj, key: str, value: Any, schema: Schema) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict):
        current = result.get(key)
        result[key] = strategic_patch(current if isinstance(current, dict) else {}, value, schema)
        if value.get("$patch") == "delete":
            del result[key]
    elif isinstance(value, list) and "merge" in schema.strategies:
        current = result.get(key)
        result[key] = _merge_list(current if isinstance(current, list) else [], value, schema)
    else:
        result[key] = copy.deepcopy(value)


def _merge_list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    if not schema.merge_key:
        return current + [value for value in patch if value not in current]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [copy.deepcopy(item) for item in patch if "$patch" not in item]
    result = list(current)
    for item in patch:
        if not isinstance(item, dict) or schema.merge_key not in item:
            raise bad_request(
                f"unable to process the patch: map does not contain declared merge key: {schema.merge_key}"
            )
        result = _merge_item(result, item, schema)
    return result


def _merge_item(items: list[Any], item: Obj, schema: Schema) -> list[Any]:
    identity = item[schema.merge_key]
    same = [index for index, old in enumerate(items) if old.get(schema.merge_key) == identity]
    if item.get("$patch") == "delete":
        return [old for old in items if old.get(schema.merge_key) != identity]
    if not same:
        return [*items, strategic_patch({}, item, schema.item())]
    first = same[0]
    return [*items[:first], strategic_patch(items[first], item, schema.item()), *items[first + 1 :]]


def _delete_primitives(result: Obj, patch: Obj) -> None:
    for key, gone in patch.items():
        field = key.removeprefix(_DELETE_PRIMITIVES)
        if field != key and isinstance(result.get(field), list):
            result[field] = [value for value in result[field] if value not in gone]


def _order(result: Obj, patch: Obj, schema: Schema) -> None:
    for key, order in patch.items():
        field = key.removeprefix(_ORDER)
        if field != key and isinstance(result.get(field), list):
            result[field] = _ordered(result[field], order, schema.child(field).merge_key)


def _ordered(items: list[Any], order: list[Any], merge_key: str) -> list[Any]:
    """Items that the order names follow it; the others (the server's own) stay behind what preceded them."""

    def identity(item: Any) -> Any:
        return item.get(merge_key) if merge_key and isinstance(item, dict) else item

    ranks = {str(identity(item)): rank for rank, item in enumerate(order)}
    keys: list[tuple[int, int]] = []
    last = -1
    for position, item in enumerate(items):
        rank = ranks.get(str(identity(item)))
        last = last if rank is None else rank
        keys.append((last if rank is None else rank, position + 1 if rank is None else 0))
    return [item for _, item in sorted(zip(keys, items, strict=True), key=lambda pair: pair[0])]
