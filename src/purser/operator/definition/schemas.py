"""Structural schemas of custom resources from msgspec Structs: types, bounds, defaults, docstrings below fields.

What a type cannot say is added by the caller (``crd``).
"""

import ast
import inspect
import re
import sys
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

Schema = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    str: {"type": "string"},
}
_EMPTY_IS_ABSENT = ("string", "array", "object")
"""Optional fields of these types may be null, which is as if they were absent. An API server that was built with a Go
newer than its own time takes an empty text for null, and would refuse it."""


def schema_of(kind: Any, *, defaults: bool = True) -> Schema:
    """The schema of a type that policies are made of.

    Raises TypeError for a type that no schema is known for: that is a mistake in the Structs.
    """
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind, defaults)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**schema_of(arguments[0], defaults=defaults), **_bounds(arguments[1:])}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0], defaults=defaults)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], defaults=defaults)}
    if origin in (Union, types.UnionType):
        return _union(arguments, defaults)
    raise TypeError(f"no schema is known for {kind}")


@cache
def descriptions(kind: type) -> Mapping[str, str]:
    """What the docstrings below a Struct's fields say, by the fields' names in Python; those of bases included."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, msgspec.Struct) and each is not msgspec.Struct:
            found.update(_docstrings(each))
    return found


def _docstrings(kind: type) -> Mapping[str, str]:
    return _docstrings_of(kind.__module__)[kind.__name__]


@cache
def _docstrings_of(module: str) -> Mapping[str, Mapping[str, str]]:
    """Those of all classes of a module: `inspect` would read and parse the whole of it for each class."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: _below_fields(each) for each in tree.body if isinstance(each, ast.ClassDef)}


def _below_fields(body: ast.ClassDef) -> Mapping[str, str]:
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def _struct(kind: type[msgspec.Struct], defaults: bool) -> Schema:
    hints, said = get_type_hints(kind, include_extras=True), descriptions(kind)
    properties, required = {}, []
    for field in msgspec.structs.fields(kind):
        schema = schema_of(hints[field.name], defaults=defaults)
        if field.name in said:
            schema = {"description": said[field.name], **schema}
        if field.required:
            required.append(field.encode_name)
        elif defaults and (default := _default(field.default)) is not None:
            schema["default"] = default
        elif schema.get("type") in _EMPTY_IS_ABSENT:
            schema["nullable"] = True
        properties[field.encode_name] = schema
    return {"type": "object", **({"required": required} if required else {}), "properties": properties}


def _default(value: Any) -> Any:
    """As the CRD says it. A section's is empty: its fields have their own. Empty values are no defaults: absent is
    the same, and shorter."""
    if isinstance(value, msgspec.Struct):
        return {}
    if isinstance(value, tuple):
        return [_filled(each) for each in value] or None
    if value is msgspec.NODEFAULT or value is None or value in ("", {}):
        return None
    return value


def _filled(value: Any) -> Any:
    plain = msgspec.to_builtins(value)
    return {name: each for name, each in plain.items() if each not in ("", None)} if isinstance(plain, dict) else plain


def _bounds(annotations: tuple[Any, ...]) -> Schema:
    names = {
        "ge": "minimum",
        "le": "maximum",
        "pattern": "pattern",
        "min_length": "minLength",
        "max_length": "maxLength",
    }
    metas = [each for each in annotations if isinstance(each, msgspec.Meta)]
    found = {schema: getattr(meta, name) for meta in metas for name, schema in names.items()}
    if "pattern" in found and found["pattern"] is not None:
        found["pattern"] = re.sub(r"\\Z$", "$", found["pattern"])  # the end of the text, as RE2 and Python spell it
    return {name: value for name, value in found.items() if value is not None}


def _union(members: tuple[Any, ...], defaults: bool) -> Schema:
    """Of None and one type, or of numbers and texts, which Kubernetes knows as int-or-string."""
    known = [schema_of(each, defaults=defaults) for each in members if each is not type(None)]
    if len(known) == 1:
        return known[0]
    if [each["type"] for each in known] != ["integer", "string"]:
        raise TypeError(f"no schema is known for {members}")
    pattern = {"pattern": known[1]["pattern"]} if "pattern" in known[1] else {}
    return {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], **pattern}
