"""Strategic merge patch: a merge patch that knows which lists are keyed (apimachinery, util/strategicpatch). Pure.

Directives: `$patch: replace|delete|merge` in an object or list item, `$deleteFromPrimitiveList/<field>`,
`$setElementOrder/<field>` and `$retainKeys`, as kubectl sends them.
"""

from typing import Any

from .errors import Obj, bad_request
from .jsonio import deep_copy
from .schema import Schema

_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def strategic_patch(target: Obj, patch: Obj, schema: Schema) -> Obj:
    """`target` with `patch` merged in; raises 400 for directives that are not understood."""
    directive = patch.get("$patch")
    if directive == "replace":
        return deep_copy(_plain(patch))
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f'unable to process the patch: unknown $patch directive "{directive}"')
    result = _retain_keys(target, patch)
    for key, value in _plain(patch).items():
        _merge_field(result, key, value, schema.child(key))
    _delete_primitives(result, patch)
    _order(result, target, patch, schema)
    return result


def _plain(patch: Obj) -> Obj:
    return {key: value for key, value in patch.items() if not key.startswith("$")}


def _retain_keys(target: Obj, patch: Obj) -> Obj:
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
        result[key] = deep_copy(value)


def _merge_list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [deep_copy(item) for item in patch if "$patch" not in item]
    result = list(current)
    for item in patch:
        if not schema.merge_key:
            result = result if item in result else [*result, item]
        elif isinstance(item, dict) and schema.merge_key in item:
            result = _merge_item(result, item, schema)
        else:
            why = f"map does not contain declared merge key: {schema.merge_key}"
            raise bad_request(f"unable to process the patch: {why}")
    return _ordered(result, patch, current, schema.merge_key)


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


def _order(result: Obj, target: Obj, patch: Obj, schema: Schema) -> None:
    for key, order in patch.items():
        field = key.removeprefix(_ORDER)
        if field != key and isinstance(result.get(field), list) and isinstance(order, list):
            before = target.get(field) if isinstance(target.get(field), list) else []
            result[field] = _ordered(result[field], order, before or [], schema.child(field).merge_key)


def _ordered(items: list[Any], order: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """Items that the order names follow it; the others are put before the first one that they preceded until now."""
    wanted, old = _ranks(order, merge_key), _ranks(before, merge_key)
    named = sorted((item for item in items if _identity(item, merge_key) in wanted),
                   key=lambda item: wanted[_identity(item, merge_key)])  # fmt: skip
    others = [item for item in items if _identity(item, merge_key) not in wanted]
    merged: list[Any] = []
    for item in named:
        rank = old.get(_identity(item, merge_key), -1)
        while others and old.get(_identity(others[0], merge_key), rank) < rank:
            merged.append(others.pop(0))
        merged.append(item)
    return merged + others


def _ranks(items: list[Any], merge_key: str) -> dict[str, int]:
    return {_identity(item, merge_key): rank for rank, item in enumerate(items)}


def _identity(item: Any, merge_key: str) -> str:
    return str(item.get(merge_key) if merge_key and isinstance(item, dict) else item)
