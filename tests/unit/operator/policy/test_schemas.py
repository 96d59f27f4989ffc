"""Types become structural schemas; one that no schema is known for is a mistake that is said at once."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from purser.operator.policy.crd import schema_of


class Base(msgspec.Struct, kw_only=True):
    """A base."""

    inherited: str = ""
    """From
    the base."""


class Part(Base, kw_only=True):
    """A part."""

    name: str
    """Its name."""
    count: Annotated[int, msgspec.Meta(ge=1)] = 3
    """How many."""


class Whole(msgspec.Struct, kw_only=True, rename="camel"):
    """A whole."""

    first_part: Part | None = None
    parts: tuple[Part, ...] = (Part(name="a"),)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (bool, {"type": "boolean"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (dict[str, str], {"type": "object", "additionalProperties": {"type": "string"}}),
        (
            int | Annotated[str, msgspec.Meta(pattern="%$")],
            {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": "%$",
            },
        ),
        (str | None, {"type": "string"}),
    ],
    ids=["bool", "words", "list", "map", "int or text", "optional"],
)
def test_a_types_schema(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


def test_a_structs_schema() -> None:
    schema = schema_of(Whole)
    part = schema["properties"]["firstPart"]
    assert part["required"] == ["name"]
    assert part["properties"]["count"] == {
        "description": "How many.",
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "default": 3,
    }
    assert part["properties"]["inherited"] == {"description": "From the base.", "type": "string", "nullable": True}
    assert schema["properties"]["parts"]["default"] == [{"name": "a", "count": 3}]
    assert "default" not in schema_of(Whole, defaults=False)["properties"]["parts"]


@pytest.mark.parametrize("kind", [float, bytes, list[int], int | bool, bool | str], ids=str)
def test_a_type_without_a_schema_is_a_mistake(kind: Any) -> None:
    with pytest.raises(TypeError):
        schema_of(kind)
