"""Reading request bodies in Kubernetes' protobuf notation: what Go clients send for built-in types (kubectl create).

Answers stay JSON, which those clients take as well. Field numbers are in `builtin_protobuf.json`, written by
scripts/make_apiserver_protobuf.py. The envelope is `k8s\\0` and a `runtime.Unknown` (k8s.io/apimachinery,
runtime/generated.proto).
"""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from . import jsonio
from .errors import Obj, bad_request

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_MAX_MESSAGE_DEPTH = 60

Fields = dict[str, tuple[str, ...]]
"""By number: name ("" for what Go embeds), type, `one`, `many` or `map`, and `zero` where zero means something."""


@cache
def _table() -> dict[str, Fields]:
    text = (files(__package__) / "builtin_protobuf.json").read_text()
    return {
        name: {number: tuple(field) for number, field in fields.items()} for name, fields in json.loads(text).items()
    }


def decode_body(data: bytes, type_name: Callable[[str, str], str]) -> Obj:
    """A request body as JSON-like data; `type_name` maps apiVersion and kind to a type of the table. Raises 400."""
    if not data.startswith(_MAGIC):
        raise bad_request("the protobuf body must start with the prefix k8s\\0")
    try:
        envelope = dict(_fields(data[len(_MAGIC) :]))
        meta = {number: value.decode() for number, value in _fields(envelope.get(1, b""))}
        api_version, kind = meta.get(1, ""), meta.get(2, "")
        body = _message(envelope.get(2, b""), type_name(api_version, kind), 0)
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, struct.error, OverflowError) as error:
        raise bad_request(f"error decoding the protobuf body: {error!r}") from error
    return {"apiVersion": api_version, "kind": kind, **body}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a varint is longer than ten bytes")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field number and raw value: an int for varints, bytes for everything else."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case other:
                raise ValueError(f"wire type {other} is not used by Kubernetes")
        if at + size > len(data):
            raise ValueError("the message ends in the middle of a field")
        yield tag >> 3, data[at : at + size]
        at += size


def _message(data: bytes, name: str, depth: int) -> Any:
    if depth > _MAX_MESSAGE_DEPTH:
        raise ValueError(f"the message is nested more than {_MAX_MESSAGE_DEPTH} levels deep")
    if special := _SPECIAL_TYPES.get(name.rsplit(".", 1)[-1]):
        return special(dict(_fields(data)))
    fields = _table()[name]
    out: Obj = {}
    for number, raw in _fields(data):
        if str(number) in fields:
            _put(out, fields[str(number)], raw, depth)
    return out.get("items", []) if name.endswith(".ExtraValue") else out


def _put(out: Obj, field: tuple[str, ...], raw: Any, depth: int) -> None:
    name, type_name, shape, *zero = field
    if shape == "map":
        entry = dict(_fields(raw))
        value = _value(entry.get(2, b""), type_name, depth)
        out.setdefault(name, {})[entry.get(1, b"").decode()] = value
        return
    value = _value(raw, type_name, depth)
    if shape == "many":
        out.setdefault(name, []).append(value)
    elif not name:
        out.update(value)  # what Go embeds, JSON writes into the outer object
    elif zero or value not in (None, "", 0, False):
        out[name] = value  # Go always sends plain fields; JSON would have omitted their zero values


def _value(raw: Any, type_name: str, depth: int) -> Any:
    match type_name:
        case "string":
            return raw.decode()
        case "bytes":
            return base64.b64encode(raw).decode()
        case "bool":
            return bool(raw)
        case "int32" | "int64":
            return _to_signed(raw)
        case "double":
            return struct.unpack("<d", raw)[0]
    return _message(raw, type_name, depth + 1)


def _to_signed(raw: int) -> int:
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _time(fields: dict[int, Any], *, micro: bool = False) -> str | None:
    if not fields:
        return None
    moment = datetime.fromtimestamp(_to_signed(fields.get(1, 0)), UTC)
    nanos = f".{fields.get(2, 0) // 1000:06d}" if micro else ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + nanos + "Z"


def _json(fields: dict[int, Any]) -> Any:
    return jsonio.decode(fields[1]) if fields.get(1) else {}


_SPECIAL_TYPES: dict[str, Callable[[dict[int, Any]], Any]] = {
    "Time": _time,
    "MicroTime": lambda fields: _time(fields, micro=True),
    "Quantity": lambda fields: fields.get(1, b"0").decode(),
    "IntOrString": lambda fields: fields.get(3, b"").decode() if fields.get(1) else _to_signed(fields.get(2, 0)),
    "RawExtension": _json,
    "FieldsV1": _json,
}
