"""Types of objects, built-in and custom, in one notation read from OpenAPI schemas.

`builtin_schemas.json` holds the built-in types (written by scripts/make_apiserver_schemas.py); a CRD brings its
own. Every part that must know an object's shape reads it here: decoding, strategic and server-side merges,
validation of custom objects.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from .errors import Obj
from .jsonio import decode, encode

MISSING: Any = object()
"""No default was given (None is a legal default)."""


@dataclass(slots=True, eq=False, repr=False)
class Schema:
    """One type. `kind` is a JSON schema type, quantity, int-or-string, or "" for anything."""

    kind: str = ""
    format: str = ""
    properties: dict[str, "Schema"] = field(default_factory=dict)
    values: "Schema | None" = None
    """Type of a map's values (`additionalProperties`)."""
    items: "Schema | None" = None
    required: frozenset[str] = frozenset()
    preserve: bool = False
    """Fields that the schema does not name are kept."""
    embedded: bool = False
    """A whole Kubernetes object: apiVersion, kind and metadata are known."""
    nullable: bool = False
    atomic: bool = False
    """A map or list that has one owner and is replaced as a whole by server-side apply."""
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    merge_key: str = ""
    """Key field by which a strategic patch merges the list; empty where items are scalars."""
    strategies: frozenset[str] = frozenset()
    """Strategic patch strategies: merge, replace, retainKeys."""
    default: Any = MISSING
    rules: Mapping[str, Any] = field(default_factory=dict)
    """The schema as given, for the value checks (enum, minimum, pattern, ...)."""

    def child(self, name: str) -> "Schema":
        """Type of a field or map value; an untyped one where the schema does not say."""
        return self.properties.get(name) or self.values or ANY

    def item(self) -> "Schema":
        """Type of a list's items."""
        return self.items or ANY

    @property
    def associative(self) -> bool:
        """A list whose items have an identity: merged item by item."""
        return self.kind == "array" and self.list_type in ("map", "set")


ANY = Schema(preserve=True)


class Loader:
    """Turns OpenAPI schemas into `Schema`, following `$ref` (types may contain themselves)."""

    def __init__(self, definitions: Mapping[str, Obj]) -> None:
        self._definitions = definitions
        self._loaded: dict[str, Schema] = {}

    def named(self, name: str) -> Schema:
        """The definition of that name."""
        if name not in self._loaded:
            self._loaded[name] = Schema()
            self._fill(self._loaded[name], self._definitions[name])
        return self._loaded[name]

    def load(self, raw: Obj) -> Schema:
        """An inline schema; a bare reference is the referenced type itself."""
        ref = raw.get("$ref")
        if isinstance(ref, str):
            target = self.named(ref.rsplit("/", 1)[-1])
            return target if len(raw) == 1 else _annotated(target, raw)
        schema = Schema()
        self._fill(schema, raw)
        return schema

    def _fill(self, schema: Schema, raw: Obj) -> None:
        schema.kind = _kind(raw)
        schema.format = raw.get("format", "")
        schema.properties = {name: self.load(sub) for name, sub in (raw.get("properties") or {}).items()}
        additional = raw.get("additionalProperties")
        schema.values = self.load(additional) if isinstance(additional, dict) else ANY if additional else None
        schema.items = self.load(raw["items"]) if isinstance(raw.get("items"), dict) else None
        schema.required = frozenset(raw.get("required") or ())
        schema.preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields")) or _is_open(schema)
        schema.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        schema.nullable = bool(raw.get("nullable"))
        schema.default = raw.get("default", MISSING)
        schema.rules = raw
        _annotate(schema, raw)


def _kind(raw: Obj) -> str:
    if raw.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if raw.get("format") in ("quantity", "int-or-string"):
        return str(raw["format"])
    return str(raw.get("type") or "")


def _is_open(schema: Schema) -> bool:
    """An object that names nothing (RawExtension, FieldsV1) or a value of any type."""
    return schema.kind == "" or (schema.kind == "object" and not schema.properties and schema.values is None)


def _annotate(schema: Schema, raw: Obj) -> None:
    schema.atomic = raw.get("x-kubernetes-map-type") == "atomic" or schema.atomic
    schema.list_type = raw.get("x-kubernetes-list-type", schema.list_type)
    schema.list_keys = tuple(raw.get("x-kubernetes-list-map-keys") or schema.list_keys)
    schema.merge_key = raw.get("x-kubernetes-patch-merge-key", schema.merge_key)
    strategy = raw.get("x-kubernetes-patch-strategy", "")
    schema.strategies = frozenset(filter(None, strategy.split(","))) or schema.strategies


def _annotated(target: Schema, raw: Obj) -> Schema:
    copied = Schema(**{name: getattr(target, name) for name in Schema.__slots__})
    _annotate(copied, raw)
    return copied


@cache
def builtin_definitions() -> dict[str, Obj]:
    """The raw table of built-in types by short name, such as `core.v1.Pod`."""
    text = (files(__package__) / "builtin_schemas.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


@cache
def _builtin_loader() -> Loader:
    return Loader(builtin_definitions())


@cache
def builtin(name: str) -> Schema:
    """A built-in type by short name."""
    return _builtin_loader().named(name)


def object_meta() -> Schema:
    """`metadata` of every object."""
    return builtin("meta.v1.ObjectMeta")


def custom(raw: Obj | None) -> Schema:
    """The schema of a custom resource; without one everything is kept."""
    return _custom(encode(raw or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}))


@lru_cache(maxsize=16)  # a large one takes 10 ms, and comes with each change of its definition's status
def _custom(text: bytes) -> Schema:
    return with_object_fields(Loader({}).load(decode(text)))


def with_object_fields(schema: Schema) -> Schema:
    """Add what every object has; a CRD's schema need not name it."""
    text = Schema(kind="string")
    schema.properties = {**schema.properties, "apiVersion": text, "kind": text, "metadata": object_meta()}
    return schema
