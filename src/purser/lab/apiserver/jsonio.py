"""Bytes to objects and back: JSON by msgspec, YAML for hand-written bodies, times in Kubernetes' notation."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.yaml_reading import read_yaml

from .errors import Obj, bad_request

T = TypeVar("T")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_body_reader: JsonReader[Any] = JsonReader(Any, "the request body", max_bytes=1 << 30)  # the server bounds them before

encode = _encoder.encode


def decode(data: bytes) -> Any:
    """JSON that this server wrote itself."""
    return _decoder.decode(data)


def json_kind(value: object) -> str:
    """What JSON calls a value, for messages."""
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def deep_copy(value: T) -> T:
    """A deep copy of a JSON value, in a tenth of the time that `copy.deepcopy` takes."""
    made: T = _decoder.decode(_encoder.encode(value))
    return made


def decode_object(data: bytes, content_type: str) -> Obj:
    """A request body; raises a 400 `ApiError` that says what was wrong with it."""
    try:
        value = _decode_yaml(data) if "yaml" in content_type else _body_reader.read(data)
    except (TypeError, ValueError) as error:
        raise bad_request(f"error decoding the request body: {error}") from error
    if not isinstance(value, dict):
        raise bad_request(f"the request body must be a JSON object, not {json_kind(value)}")
    return value


def _decode_yaml(data: bytes) -> Any:
    """YAML as JSON: dates and numbers as keys become text again. Most such bodies are JSON, which reads much faster."""
    if data.lstrip().startswith(b"{"):
        with contextlib.suppress(UnreadableError):  # it may be YAML's own flow notation
            return _body_reader.read(data)
    return _body_reader.read(_encoder.encode(read_yaml(data, "the request body")))


def now() -> str:
    """The wall clock in whole seconds, as `metav1.Time` is written."""
    return timestamp(datetime.now(UTC))


def later(seconds: int) -> str:
    """`now` plus some seconds."""
    return timestamp(datetime.now(UTC) + timedelta(seconds=seconds))


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> datetime | None:
    """A `metav1.Time` or `MicroTime`; None for what is not one."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
