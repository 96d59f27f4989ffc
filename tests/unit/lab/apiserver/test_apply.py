"""Server-side apply as functions, against random histories of appliers and updaters."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.lab.apiserver import managed
from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.fieldset import compare, from_fields_v1, leaves, to_fields_v1
from purser.lab.apiserver.managed import FieldManager
from purser.lab.apiserver.schema import Schema, builtin, custom
from purser.lab.apiserver.ssa import merge, remove

THING = custom(
    {
        "type": "object",
        "properties": {
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "atomic": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "additionalProperties": {"type": "string"},
            },
            "list": {"type": "array", "items": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "items": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {
                    "type": "object",
                    "properties": {"k": {"type": "string"}, "v": {"type": "string"}, "w": {"type": "string"}},
                },
            },
        },
    }
)
TEXT = st.sampled_from(["1", "2"])
ITEM = st.fixed_dictionaries({"k": st.sampled_from("xyz")}, optional={"v": TEXT, "w": TEXT})
THINGS = st.fixed_dictionaries(
    {},
    optional={
        "map": st.dictionaries(st.sampled_from("ab"), TEXT, min_size=1),
        "atomic": st.dictionaries(st.sampled_from("ab"), TEXT, min_size=1),
        "list": st.lists(TEXT, min_size=1, max_size=2),
        "set": st.lists(st.sampled_from("abc"), min_size=1, unique=True),
        "items": st.lists(ITEM, min_size=1, max_size=3, unique_by=lambda item: item["k"]),
    },
)
HISTORY = st.lists(st.tuples(st.sampled_from(["one", "two", "update"]), THINGS), min_size=1, max_size=8)


def thing(fields: Any) -> dict[str, Any]:
    return {"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "t"}, **copy.deepcopy(fields)}


def applied(live: Any, fields: Any, who: str, *, force: bool = True) -> dict[str, Any]:
    manager = FieldManager(who, "Apply", "x.dev/v1")
    return managed.apply(live, thing(fields), manager, THING, force=force, time="2026-01-01T00:00:00Z")


def updated(live: Any, fields: Any) -> dict[str, Any]:
    new = thing(fields)
    manager = FieldManager("hand", "Update", "x.dev/v1")
    managed.update(live, new, manager, THING, "2026-01-02T00:00:00Z")
    return new


def content(obj: Any) -> Any:
    """The object as sets and maps, so that order in keyed lists does not count."""
    body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    if "items" in body:
        body["items"] = {item["k"]: item for item in body["items"]}
    if "set" in body:
        body["set"] = frozenset(body["set"])
    return {key: value for key, value in body.items() if value}


def play(history: Any) -> dict[str, Any] | None:
    live: dict[str, Any] | None = None
    for who, fields in history:
        live = updated(live, fields) if who == "update" else applied(live, fields, who)
    return live


@given(HISTORY, THINGS)
def test_a_forced_apply_is_in_the_object_afterwards(history: Any, fields: Any) -> None:
    result = applied(play(history), fields, "one")
    merged = merge(result, thing(fields), THING)
    assert content(merged) == content(result)


@given(HISTORY, THINGS)
def test_applying_the_same_again_changes_nothing(history: Any, fields: Any) -> None:
    once = applied(play(history), fields, "one")
    assert applied(once, fields, "one") == once


@given(HISTORY, THINGS)
def test_the_applier_owns_exactly_what_it_applied(history: Any, fields: Any) -> None:
    result = applied(play(history), fields, "one")
    managers = managed.read(result["metadata"].get("managedFields"))
    owned = managers.get(FieldManager("one", "Apply", "x.dev/v1"))
    expected = {
        path for path in leaves(thing(fields), THING) if path[0] not in ("f:apiVersion", "f:kind", "f:metadata")
    }
    assert (owned.paths if owned else set()) == expected


@given(HISTORY)
def test_owned_fields_exist(history: Any) -> None:
    live = play(history)
    assert live
    bare = {key: value for key, value in live.items() if key != "metadata"}
    present = set(leaves(bare, THING))
    present |= {path[:length] for path in present for length in range(1, len(path))}
    for owned in managed.read(live["metadata"].get("managedFields")).values():
        assert owned.paths <= present


@given(THINGS, THINGS)
def test_giving_everything_up_leaves_what_the_other_owns(first: Any, second: Any) -> None:
    live = applied(applied(None, first, "one"), second, "two")
    assert content(applied(live, {}, "one")) == content(thing(second))


@given(THINGS, THINGS)
def test_without_force_an_apply_conflicts_exactly_where_values_differ(first: Any, second: Any) -> None:
    live = applied(None, first, "one")
    merged = merge(live, thing(second), THING)
    clashing = compare(live, merged, THING).changed & set(leaves(thing(first), THING))
    if not clashing:
        assert content(applied(live, second, "two", force=False)) == content(merged)
        return
    with pytest.raises(StatusError) as error:
        applied(live, second, "two", force=False)
    assert error.value.code == 409
    assert len((error.value.details or {})["causes"]) == len(clashing)


@given(THINGS, THINGS)
def test_a_comparison_finds_nothing_where_nothing_differs(first: Any, second: Any) -> None:
    difference = compare(thing(first), thing(second), THING)
    assert (not difference.changed and not difference.removed) == (first_equals(first, second))


def first_equals(first: Any, second: Any) -> bool:
    return bool(content(thing(first)) == content(thing(second)))


@given(THINGS)
def test_a_set_of_paths_survives_being_written(fields: Any) -> None:
    paths = frozenset(leaves(thing(fields), THING))
    assert from_fields_v1(to_fields_v1(paths)) == paths


@examples(30)
@given(THINGS)
def test_removing_everything_that_was_set_leaves_nothing(fields: Any) -> None:
    obj = copy.deepcopy(fields)
    assert remove(obj, frozenset(leaves(obj, THING)), frozenset(), THING) == {}


def test_a_client_can_reset_the_managers() -> None:
    live = applied(None, {"map": {"a": "1"}}, "one")
    new = {**thing({"map": {"a": "1"}}), "metadata": {"name": "t", "managedFields": [{}]}}
    managed.update(live, new, FieldManager("hand", "Update", "x.dev/v1"), THING, "now")
    assert "managedFields" not in new["metadata"]


def test_appliers_come_first_then_by_time() -> None:
    live = updated(applied(None, {"map": {"a": "1"}}, "one"), {"map": {"a": "1", "b": "1"}})
    assert [entry["operation"] for entry in live["metadata"]["managedFields"]] == ["Apply", "Update"]


def test_ports_are_known_by_number_and_default_protocol() -> None:
    pod: Schema = builtin("core.v1.Pod")
    container = {"name": "c", "ports": [{"containerPort": 80}]}
    path = (
        "f:spec", "f:containers", 'k:{"name":"c"}', "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}',
        "f:containerPort",
    )  # fmt: skip
    assert path in set(leaves({"spec": {"containers": [container]}}, pod))
