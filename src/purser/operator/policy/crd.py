"""The CustomResourceDefinition of ClusterPolicy, made from its types: types, bounds, defaults, docstrings below fields.

``scripts/generate_chart.py`` writes it into the Helm chart; a test compares the two. Rules in CEL work from Kubernetes
1.25 on; older API servers leave them out, and the operator says in the policy's status what is wrong."""

import ast
import inspect
import re
import sys
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from purser.core.device.ids import MAX_SLOTS
from purser.core.kubernetes.selectors import PATTERN
from purser.operator.names import GROUP, KIND, PLURAL, VERSION
from purser.operator.policy.decoding import CHANGING_LABELS, DRIVER_VERSION, MAX_PROFILES
from purser.operator.policy.spec import ClusterPolicySpec, ClusterPolicyStatus

Schema = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    str: {"type": "string"},
}
_NULLABLE_TYPES = ("string", "array", "object")
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
    return {each.name: _field_docstrings(each) for each in tree.body if isinstance(each, ast.ClassDef)}


def _field_docstrings(body: ast.ClassDef) -> Mapping[str, str]:
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def _struct(kind: type[msgspec.Struct], defaults: bool) -> Schema:
    hints, described = get_type_hints(kind, include_extras=True), descriptions(kind)
    properties, required = {}, []
    for field in msgspec.structs.fields(kind):
        schema = schema_of(hints[field.name], defaults=defaults)
        if field.name in described:
            schema = {"description": described[field.name], **schema}
        if field.required:
            required.append(field.encode_name)
        elif defaults and (default := _default(field.default)) is not None:
            schema["default"] = default
        elif schema.get("type") in _NULLABLE_TYPES:
            schema["nullable"] = True
        properties[field.encode_name] = schema
    return {"type": "object", **({"required": required} if required else {}), "properties": properties}


def _default(value: Any) -> Any:
    """As the CRD says it. A section's is empty: its fields have their own. Empty values are not defaults: absent is
    the same, and shorter."""
    if isinstance(value, msgspec.Struct):
        return {}
    if isinstance(value, tuple):
        return [_with_defaults(each) for each in value] or None
    if value is msgspec.NODEFAULT or value is None or value in ("", {}):
        return None
    return value


def _with_defaults(value: Any) -> Any:
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


# --- the definition


Raw = dict[str, Any]

_LIST_TYPE = "x-kubernetes-list-type"
_KEYS = "x-kubernetes-list-map-keys"
_RULES = "x-kubernetes-validations"


def _at_least_one(done: str) -> Schema:
    """Of a number or percentage of nodes: more than none."""
    message = f"no node could ever be {done}: use 1 or more"
    return {_RULES: [{"rule": "type(self) == int ? self > 0 : self != '0%'", "message": message}]}


_NODES: Schema = {
    _RULES: [
        {
            "rule": f"[{', '.join(repr(label) for label in CHANGING_LABELS)}].all(label, !(label in self))",
            "message": "selects nodes by a label that the operator itself writes: use another label",
        }
    ]
}
# API servers hold rules against a schema's own default as well, before the defaults of its fields are in it: each must
# answer for an empty section.
_EXTRA_SCHEMA: dict[str, Schema] = {
    "": {
        _RULES: [
            {
                "rule": "!has(self.gfd) || !(self.gfd.enabled && self.devicePlugin.enabled"
                " && self.devicePlugin.flavor == 'purser' && self.devicePlugin.featureLabels != 'off')",
                "message": "devicePlugin.featureLabels is set, but feature discovery writes the same labels:"
                " set gfd.enabled to false",
            },
            {
                "rule": "!has(self.mig) || self.mig.strategy != 'on-demand' ||"
                " self.devicePlugin.enabled && self.devicePlugin.flavor == 'purser'",
                "message": "mig.strategy on-demand needs Purser's agent: set devicePlugin.flavor to purser",
            },
        ]
    },
    "devicePlugin.slots": {"minimum": 1, "maximum": MAX_SLOTS},
    "driver.profiles": {"maxItems": MAX_PROFILES, _LIST_TYPE: "map", _KEYS: ["name"]},
    "driver.profiles[].nodeSelector": {"minProperties": 1, **_NODES},
    "driver.requirements": {"maxItems": MAX_PROFILES},
    "driver.requirements[].nodeSelector": _NODES,
    "driver.upgradePolicy.canary.nodeSelector": _NODES,
    "driver.requirements[].minimum": {"pattern": f"^({DRIVER_VERSION})?$"},
    "driver.requirements[].excluded[]": {"pattern": f"^({DRIVER_VERSION})?$"},
    "driver.upgradePolicy.maxUnavailable": _at_least_one("upgraded"),
    "driver.upgradePolicy.waitForCompletion.podSelector": {"pattern": PATTERN},
    "driver.upgradePolicy.drain.podSelector": {"pattern": PATTERN},
    "daemonsets.rollingUpdate.maxUnavailable": _at_least_one("updated"),
    "migManager": {
        _RULES: [
            {
                "rule": "self.enabled || !has(self.config) || !has(self.config.default) || self.config.default == ''",
                "message": "config.default is set but the MIG manager is disabled:"
                " enable the MIG manager or remove config.default",
            }
        ]
    },
}
"""What `purser.operator.policy.decoding` says and types do not, by field of the spec."""

_COLUMNS = [
    {"name": "Status", "type": "string", "jsonPath": ".status.state"},
    {
        "name": "Ready",
        "type": "integer",
        "jsonPath": ".status.nodes.ready",
        "description": "Nodes on which all operands are ready",
    },
    {"name": "Nodes", "type": "integer", "jsonPath": ".status.nodes.total", "description": "Nodes with GPUs"},
    {
        "name": "Upgraded",
        "type": "string",
        "jsonPath": ".status.upgrade.progress",
        "description": "Nodes that have the target driver, such as 3/8; empty when all have it",
    },
    {
        "name": "Halted",
        "type": "boolean",
        "jsonPath": ".status.upgrade.halted",
        "description": "Whether the driver upgrade is halted because it failed on too many nodes",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


@cache
def definition() -> Raw:
    """The whole object, as it is applied; callers must not modify it."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": _COLUMNS,
        "schema": {"openAPIV3Schema": _schema()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["pcp"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _schema() -> Schema:
    spec = schema_of(ClusterPolicySpec)
    spec["description"] = (
        "The GPU stack of a cluster. Every field has a default, so an empty spec describes a complete stack."
    )
    spec["default"] = {}
    status = schema_of(ClusterPolicyStatus, defaults=False)
    status["description"] = "State of the GPU stack."
    _complete(spec, "")
    for name, key in (("conditions", "type"), ("operands", "name"), ("pools", "name")):
        status["properties"][name].update({_LIST_TYPE: "map", _KEYS: [key]})
    return {
        "type": "object",
        "description": "The GPU stack of a cluster, rolled out by Purser's operator. The oldest policy is active.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }


def _complete(schema: Schema, place: str) -> None:
    """Add to the schema at ``place``, and to those below it, what types do not say; in place."""
    schema.update(_EXTRA_SCHEMA.get(place, {}))
    if place.rpartition(".")[2] == "env":
        schema.update({_LIST_TYPE: "map", _KEYS: ["name"]})
    for name, each in schema.get("properties", {}).items():
        _complete(each, f"{place}.{name}" if place else name)
    if "items" in schema:
        _complete(schema["items"], f"{place}[]")


# --- unknown fields


def unknown_fields(policy: Mapping[str, Any]) -> list[str]:
    """Their paths, as kubectl's strict validation names them; nothing is said of metadata."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return list(_unknown(policy, schema, ""))


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{path}[{place}]")
    known = schema.get("properties")
    if known is None or not isinstance(value, Mapping):
        return
    for name, item in value.items():
        where = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _unknown(item, known[name], where)
        else:
            yield where
