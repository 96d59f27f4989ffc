"""values.schema.json: every value of values.yaml is in it, with a description, and nothing else is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "purser"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
HELMS_OWN = {"global"}


def values(section: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Names of all values, those of sections whose content Kubernetes defines not."""
    for name, value in section.items():
        yield prefix + name
        inner = schema["properties"].get(name, {})
        if "properties" in inner:
            yield from values(value, inner, f"{prefix}{name}.")


def described(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        yield prefix + name, inner
        yield from described(inner, f"{prefix}{name}.")


def test_the_schema_knows_every_value_and_no_other() -> None:
    assert {name for name, _ in described(SCHEMA)} - HELMS_OWN == set(values(VALUES, SCHEMA))


def test_every_value_has_a_description() -> None:
    assert [name for name, inner in described(SCHEMA) if not inner.get("description")] == []


def test_a_misspelt_value_is_refused_in_every_section() -> None:
    sections = {"": SCHEMA} | {name: inner for name, inner in described(SCHEMA) if "properties" in inner}
    assert [name for name, inner in sections.items() if inner.get("additionalProperties") is not False] == []


def test_the_defaults_fit() -> None:
    jsonschema.validate(VALUES, SCHEMA)
