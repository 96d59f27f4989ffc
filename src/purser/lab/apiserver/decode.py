"""Reading objects of built-in types as the real server's Go types do: checked, without unknown fields and empties."""

from dataclasses import dataclass, field
from typing import Any

from purser.core.decoding import brief

from . import quantity
from .errors import Obj, StatusError, bad_request
from .schema import ANY, Schema

_GO = {
    "string": "string",
    "integer": "int64",
    "number": "float64",
    "boolean": "bool",
    "array": "slice",
    "object": "struct",
}
_MAX_JSON_DEPTH = 100


@dataclass(slots=True)
class Unknown:
    """Paths of fields that the types do not know, in the server's notation (`spec.containers[0].imagge`)."""

    paths: list[str] = field(default_factory=list)

    def messages(self) -> list[str]:
        """As the server words them."""
        return [f'unknown field "{path}"' for path in self.paths]


def decode(obj: Obj, schema: Schema, unknown: Unknown) -> Obj:
    """A normalised copy; raises a 400 `StatusError` naming the field whose type is wrong."""
    try:
        return _struct(obj, schema, "", unknown, 0)
    except TypeError as error:
        kind, version = obj.get("kind", ""), str(obj.get("apiVersion", "")).rsplit("/", 1)[-1]
        message = f'{brief(kind)} in version "{brief(version)}" cannot be handled as a {brief(kind)}: {brief(error)}'
        raise bad_request(message) from error


def strict_error(unknown: Unknown) -> StatusError:
    """What `fieldValidation=Strict` answers."""
    return bad_request("strict decoding error: " + ", ".join(unknown.messages()))


def _value(value: Any, schema: Schema, path: str, unknown: Unknown, depth: int) -> Any:
    if depth > _MAX_JSON_DEPTH:
        raise TypeError(f"json: nesting exceeds {_MAX_JSON_DEPTH} levels at {path}")
    match schema.kind:
        case "":
            return value
        case "object":
            return _struct(_expect(value, dict, schema, path), schema, path, unknown, depth)
        case "array":
            items = _expect(value, list, schema, path)
            return [_value(v, schema.item(), f"{path}[{i}]", unknown, depth + 1) for i, v in enumerate(items)]
        case "quantity":
            return _quantity(value, path)
        case "int-or-string":
            return _expect(value, (int, str), schema, path)
    return _scalar(value, schema, path)


def _scalar(value: Any, schema: Schema, path: str) -> Any:
    if schema.kind == "boolean":
        return _expect(value, bool, schema, path)
    if isinstance(value, bool):
        raise _mismatch(value, schema, path)
    if schema.kind == "integer":
        return int(value) if isinstance(value, float) and value.is_integer() else _expect(value, int, schema, path)
    return _expect(value, (int, float) if schema.kind == "number" else str, schema, path)


def _struct(obj: Obj, schema: Schema, path: str, unknown: Unknown, depth: int) -> Obj:
    if schema.preserve:
        return obj
    out: Obj = {}
    for name, value in obj.items():
        sub = schema.properties.get(name) or schema.values
        where = f"{path}.{name}" if path else name
        if sub is None:
            unknown.paths.append(where)
        elif value is None:
            continue
        else:
            decoded = _value(value, sub, where, unknown, depth + 1)
            if not _is_omitted(decoded, sub, name in schema.required):
                out[name] = decoded
    return out


def _is_omitted(value: Any, schema: Schema, required: bool) -> bool:
    """Go's omitempty for lists and maps; empty structs (`emptyDir: {}`) mean something and stay."""
    return not required and (value == [] or (value == {} and schema.values is not None and schema is not ANY))


def _expect(value: Any, types: Any, schema: Schema, path: str) -> Any:
    if not isinstance(value, types):
        raise _mismatch(value, schema, path)
    return value


def _mismatch(value: Any, schema: Schema, path: str) -> TypeError:
    got = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    want = "map[string]string" if schema.values is not None else _GO.get(schema.kind, schema.kind)
    return TypeError(f"json: cannot unmarshal {got} into Go struct field {path} of type {want}")


def _quantity(value: Any, path: str) -> str:
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"json: cannot unmarshal into Go struct field {path} of type resource.Quantity")
    try:
        return quantity.canonical(value)
    except quantity.InvalidQuantityError as error:
        raise TypeError(str(error)) from error
