"""Fields of a ClusterPolicy that its definition does not know: API servers drop them without a word."""

from collections.abc import Iterator, Mapping
from typing import Any

from purser.operator.definition.crd import definition
from purser.operator.definition.schemas import Schema


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
