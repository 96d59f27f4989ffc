"""Reading bodies: built-in types, protobuf, custom schemas. No input may do worse than be refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples

from purser.lab.apiserver import jsonio, protobuf, structural
from purser.lab.apiserver.decode import Unknown, decode
from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.resources import type_name
from purser.lab.apiserver.schema import builtin, custom

POD = builtin("core.v1.Pod")
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "containers", "name", "labels", "resources", "limits", "cpu", "env"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def pod(**container: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", **container}]}}


def test_unknown_fields_are_named_with_their_path_and_dropped() -> None:
    unknown = Unknown()
    body = {**pod(imagge="x"), "spek": {}}
    decoded = decode(body, POD, unknown)
    assert unknown.paths == ["spec.containers[0].imagge", "spek"]
    assert decoded == pod()


def test_nulls_and_empties_are_omitted_but_empty_structs_stay() -> None:
    body = pod(env=[], command=None, resources={})
    body["metadata"] = {"labels": {}, "name": "a"}
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    decoded = decode(body, POD, Unknown())
    assert decoded["spec"]["containers"] == [{"name": "c", "resources": {}}]
    assert decoded["metadata"] == {"name": "a"}
    assert decoded["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


@pytest.mark.parametrize(
    "container",
    [
        {"image": 1},
        {"env": {}},
        {"resources": []},
        {"tty": "yes"},
        {"resources": {"limits": {"cpu": "x"}}},
        {"ports": [1]},
    ],
)
def test_wrong_types_are_bad_requests(container: Any) -> None:
    with pytest.raises(StatusError) as error:
        decode(pod(**container), POD, Unknown())
    assert error.value.code == 400
    assert error.value.message.startswith('Pod in version "v1" cannot be handled as a Pod: ')


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind", "other"]), JSON))
def test_any_json_is_read_or_refused(body: Any) -> None:
    try:
        decoded = decode(body, POD, Unknown())
    except StatusError as error:
        assert error.code == 400
    else:
        assert decode(decoded, POD, Unknown()) == decoded


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    for content_type in ("application/json", "application/yaml"):
        try:
            assert isinstance(jsonio.decode_object(data, content_type), dict)
        except StatusError as error:
            assert error.code == 400


def field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2, len(payload)]) + payload


def envelope(kind: str, raw: bytes) -> bytes:
    meta = field(1, b"v1") + field(2, kind.encode())
    return b"k8s\0" + field(1, meta) + field(2, raw)


def test_protobuf_bodies_become_what_json_would_have_been() -> None:
    labels = field(11, field(1, b"app") + field(2, b"x"))
    # Go writes every plain field, empty ones too: generateName, and a creation time of zero length.
    metadata = field(1, b"a") + field(2, b"") + labels + field(8, b"")
    limits = field(1, field(1, b"nvidia.com/gpu") + field(2, field(1, b"2")))
    container = field(1, b"main") + field(2, b"image") + field(8, limits) + b"\x80\x01\x00"
    seconds = bytes([4 << 3, 30])
    raw = field(1, metadata) + field(2, field(2, container) + seconds)
    assert protobuf.decode_body(envelope("Pod", raw), type_name) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "main", "image": "image", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
            "terminationGracePeriodSeconds": 30,
        },
    }


def test_zero_survives_where_it_means_something() -> None:
    raw = field(2, bytes([1 << 3, 0]) + bytes([5 << 3, 0]))
    body = protobuf.decode_body(
        b"k8s\0" + field(1, field(1, b"apps/v1") + field(2, b"Deployment")) + field(2, raw), type_name
    )
    assert body["spec"] == {"replicas": 0}


@examples(300)
@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_protobuf_or_refused(data: bytes, wrapped: bool) -> None:
    try:
        body = protobuf.decode_body(envelope("Pod", data) if wrapped else b"k8s\0" + data, type_name)
    except StatusError as error:
        assert error.code == 400
    else:
        assert isinstance(body, dict)


CUSTOM = custom(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 3},
                    "mode": {"type": "string", "enum": ["a"]},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            }
        },
    }
)


def test_nulls_in_fields_and_maps_of_a_custom_object_are_no_values() -> None:
    body = {"spec": {"mode": None, "labels": {"a": None, "b": "c"}}}
    structural.drop_nulls(body, CUSTOM)
    assert body == {"spec": {"labels": {"b": "c"}}}


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "x"]), JSON))
def test_any_json_passes_through_a_custom_schema(body: Any) -> None:
    dropped: list[str] = []
    structural.prune(body, CUSTOM, "", dropped)
    structural.fill_defaults(body, CUSTOM)
    structural.drop_nulls(body, CUSTOM)
    list(structural.check(body, CUSTOM, ""))
    if isinstance(body.get("spec"), dict):
        assert set(body["spec"]) <= {"size", "mode", "labels"}
        assert "size" in body["spec"]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"type": "objekt"}, "s.type"),
        ({"properties": {}}, "s.type"),
        ({"type": "string", "pattern": "("}, "s.pattern"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": "x"}}}, "s.properties[a].items"),
    ],
)
def test_schemas_that_cannot_be_used_are_found(raw: Any, field: str) -> None:
    assert [cause.field for cause in structural.check_schema(raw, "s")] == [field]
