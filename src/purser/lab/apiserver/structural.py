"""Structural schemas of custom resources: prune what they do not name, fill their defaults, check values. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from .errors import Cause, Obj
from .jsonio import deep_copy, parse_time
from .names import invalid, required
from .schema import ANY, MISSING, Schema

_OBJECT_FIELDS = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def check_schema(raw: Any, path: str) -> Iterator[Cause]:
    """Whether a schema can be used at all: known types, patterns that compile, objects where schemas are expected."""
    if not isinstance(raw, dict):
        yield invalid(path, str(raw), "must be a schema")
        return
    has_open_type = any(
        raw.get(mark) for mark in ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    )
    if raw.get("type", None if has_open_type else "") not in (*_TYPES, None):
        yield required(f"{path}.type", "must not be empty for specified object fields")
    try:
        re.compile(raw.get("pattern") or "")
    except re.error as error:
        yield invalid(f"{path}.pattern", raw["pattern"], f"must be a valid regular expression, but isn't: {error}")
    for name, sub in (raw.get("properties") or {}).items():
        yield from check_schema(sub, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if name in raw and not isinstance(raw[name], bool):
            yield from check_schema(raw[name], f"{path}.{name}")


def prune(value: Any, schema: Schema, path: str, dropped: list[str]) -> None:
    """Delete unknown fields in place; their paths are appended to `dropped`."""
    if isinstance(value, dict):
        for name in list(value):
            where = f"{path}.{name}" if path else name
            known = schema.properties.get(name) or schema.values
            if known is not None:
                prune(value[name], known, where, dropped)
            elif not (schema.preserve or (schema.embedded and name in _OBJECT_FIELDS)):
                del value[name]
                dropped.append(where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            prune(item, schema.item(), f"{path}[{index}]", dropped)


def fill_defaults(value: Any, schema: Schema) -> None:
    """Set absent fields (and nulls that may not be null) to their defaults, in place, outside in."""
    if isinstance(value, dict):
        for name, sub in schema.properties.items():
            absent = name not in value or (value[name] is None and not sub.nullable)
            if absent and sub.default is not MISSING:
                value[name] = deep_copy(sub.default)
        for name, item in value.items():
            fill_defaults(item, schema.child(name))
    elif isinstance(value, list):
        for item in value:
            fill_defaults(item, schema.item())


def drop_nulls(value: Any, schema: Schema) -> None:
    """A null that is not nullable means an absent field, or value of a map, in place."""
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            sub = schema.child(name)
            if sub is not ANY and not sub.nullable:
                del value[name]
        for name, item in value.items():
            drop_nulls(item, schema.child(name))
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item, schema.item())


def check(value: Any, schema: Schema, path: str) -> Iterator[Cause]:
    """Every way in which a value is not what its schema demands."""
    if value is None and (schema.nullable or not schema.kind):
        return
    if not _has_type(value, schema):
        yield _wrong_type(value, schema, path)
        return
    yield from check_rules(value, schema.rules, path)
    if isinstance(value, dict):
        for name in sorted(schema.required - value.keys()):
            yield required(f"{path}.{name}" if path else name)
        for name, item in value.items():
            if name not in _OBJECT_FIELDS or path:
                yield from check(item, schema.child(name), f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield from _check_items(value, schema, path)


def _has_type(value: Any, schema: Schema) -> bool:
    if schema.kind in ("", "quantity"):
        return True
    if schema.kind == "int-or-string":
        return isinstance(value, (int, str)) and not isinstance(value, bool)
    if isinstance(value, bool):
        return schema.kind == "boolean"
    if schema.kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[schema.kind])


def _wrong_type(value: Any, schema: Schema, path: str) -> Cause:
    names = {
        dict: "object",
        list: "array",
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        type(None): "null",
    }
    kind = "integer,string" if schema.kind == "int-or-string" else schema.kind
    where = path or "<nil>"
    got = names.get(type(value), "unknown")
    shown = f'"{got}"'
    return Cause(
        "FieldValueTypeInvalid", where, f"Invalid value: {shown}: {where} in body must be of type {kind}: {shown}"
    )


def _check_items(items: list[Any], schema: Schema, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        yield from check(item, schema.item(), where)
        identity = _identity(item, schema)
        if identity is not None and identity in seen:
            yield Cause("FieldValueDuplicate", where, f"Duplicate value: {identity}")
        seen.add(identity or "")


def _identity(item: Any, schema: Schema) -> str | None:
    if schema.list_type == "map" and isinstance(item, dict):
        return "{" + ", ".join(f'"{key}": "{item.get(key)}"' for key in schema.list_keys) + "}"
    return f'"{item}"' if schema.list_type == "set" else None


def check_rules(value: Any, rules: Any, path: str) -> Iterator[Cause]:
    """The checks of a value: enum, bounds, patterns, sizes, formats, and combinators."""
    if "enum" in rules and value not in rules["enum"]:
        listed = ", ".join(f'"{choice}"' for choice in rules["enum"])
        yield Cause("FieldValueNotSupported", path, f'Unsupported value: "{value}": supported values: {listed}')
    if isinstance(value, str):
        yield from _check_text(value, rules, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _check_number(value, rules, path)
    elif isinstance(value, (list, dict)):
        yield from _check_size(value, rules, path)
    yield from _check_combinators(value, rules, path)


def _body(path: str, value: Any, why: str) -> Cause:
    return invalid(path, value, f"{path} in body {why}")


def _check_text(value: str, rules: Any, path: str) -> Iterator[Cause]:
    if "pattern" in rules and not re.search(rules["pattern"], value):
        yield _body(path, value, f"should match '{rules['pattern']}'")
    if len(value) < rules.get("minLength", 0):
        yield _body(path, value, f"should be at least {rules['minLength']} chars long")
    if len(value) > rules.get("maxLength", len(value)):
        yield Cause("FieldValueTooLong", path, f"Too long: may not be more than {rules['maxLength']} bytes")
    if rules.get("format") == "date-time" and parse_time(value) is None:
        yield _body(path, value, f'must be of type date-time: "{value}"')


def _check_number(value: float, rules: Any, path: str) -> Iterator[Cause]:
    low, high = rules.get("minimum"), rules.get("maximum")
    if low is not None and (value < low or (rules.get("exclusiveMinimum") and value == low)):
        yield _body(
            path, value, f"should be greater than{'' if rules.get('exclusiveMinimum') else ' or equal to'} {low}"
        )
    if high is not None and (value > high or (rules.get("exclusiveMaximum") and value == high)):
        yield _body(path, value, f"should be less than{'' if rules.get('exclusiveMaximum') else ' or equal to'} {high}")
    if (step := rules.get("multipleOf")) and value % step:
        yield _body(path, value, f"should be a multiple of {step}")


def _check_size(value: Any, rules: Any, path: str) -> Iterator[Cause]:
    what = "Items" if isinstance(value, list) else "Properties"
    if len(value) < rules.get(f"min{what}", 0):
        yield _body(path, len(value), f"should have at least {rules[f'min{what}']} {what.lower()}")
    if len(value) > rules.get(f"max{what}", len(value)):
        yield Cause("FieldValueTooMany", path, f"Too many: {len(value)}: must have at most {rules[f'max{what}']} items")


def _check_combinators(value: Any, rules: Any, path: str) -> Iterator[Cause]:
    for sub in rules.get("allOf") or ():
        yield from _check_raw(value, sub, path)
    if (choices := rules.get("anyOf")) and all(any(_check_raw(value, sub, path)) for sub in choices):
        yield _body(path, value, "must validate at least one schema (anyOf)")
    if choices := rules.get("oneOf"):
        holding = sum(not any(_check_raw(value, sub, path)) for sub in choices)
        if holding != 1:
            yield _body(path, value, "must validate one and only one schema (oneOf)")
    if "not" in rules and not any(_check_raw(value, rules["not"], path)):
        yield _body(path, value, "must not validate the schema (not)")


def _check_raw(value: Any, rules: Obj, path: str) -> Iterator[Cause]:
    kind = rules.get("type")
    if kind and not _has_type(value, Schema(kind=kind)):
        yield _wrong_type(value, Schema(kind=kind), path)
        return
    yield from check_rules(value, rules, path)
    if isinstance(value, dict):
        yield from (required(f"{path}.{name}") for name in rules.get("required") or () if name not in value)
        for name, sub in (rules.get("properties") or {}).items():
            if name in value:
                yield from _check_raw(value[name], sub, f"{path}.{name}")
    if isinstance(value, list) and isinstance(rules.get("items"), dict):
        for index, item in enumerate(value):
            yield from _check_raw(item, rules["items"], f"{path}[{index}]")
