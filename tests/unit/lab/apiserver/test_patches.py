"""JSON patch, merge patch and strategic merge patch as functions."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text

from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.patch import json_patch, merge_patch
from purser.lab.apiserver.schema import builtin
from purser.lab.apiserver.strategic import strategic_patch

POD = builtin("core.v1.Pod")
SCALARS = st.none() | st.booleans() | st.integers() | any_text(max_size=3)
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value


def diff(old: Any, new: Any) -> Any:
    """The merge patch from one null-free object to another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    return patch | {key: diff(old.get(key), value) for key, value in new.items() if key not in old or old[key] != value}


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_made_of_two_objects_leads_from_one_to_the_other(old: Any, new: Any) -> None:
    old, new = without_nulls(old), without_nulls(new)
    assert merge_patch(old, diff(old, new)) == new


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_patching_leaves_its_arguments_alone(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    result = merge_patch(target, patch)
    result["new"] = 1
    assert (target, patch) == before


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param([{"op": "add", "path": "/a", "value": 1}], {"a": 1, "l": [1, 2]}, id="a field is added"),
        pytest.param([{"op": "add", "path": "/l/1", "value": 9}], {"l": [1, 9, 2]}, id="an item is inserted"),
        pytest.param([{"op": "add", "path": "/l/-", "value": 9}], {"l": [1, 2, 9]}, id="an item is appended"),
        pytest.param([{"op": "remove", "path": "/l/0"}], {"l": [2]}, id="an item is removed"),
        pytest.param([{"op": "replace", "path": "/l/0", "value": 5}], {"l": [5, 2]}, id="an item is replaced"),
        pytest.param([{"op": "replace", "path": "", "value": {}}], {}, id="everything is replaced"),
        pytest.param([{"op": "move", "from": "/l/0", "path": "/l/1"}], {"l": [2, 1]}, id="an item is moved"),
        pytest.param([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"l": [1, 2], "x/y~z": 1}, id="keys are escaped"),
    ],
)
def test_json_patch(operations: Any, expected: Any) -> None:
    assert json_patch({"l": [1, 2]}, operations) == expected


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        pytest.param({}, 400, id="not a list"),
        pytest.param([{"op": "add"}], 400, id="no path"),
        pytest.param([{"op": "jump", "path": "/a"}], 400, id="an unknown operation"),
        pytest.param([{"op": "add", "path": "a"}], 400, id="a pointer without slash"),
        pytest.param([{"op": "remove", "path": ""}], 422, id="nothing to remove from"),
        pytest.param([{"op": "remove", "path": "/none"}], 422, id="an absent field"),
        pytest.param([{"op": "replace", "path": "/l/7", "value": 1}], 422, id="an index outside the list"),
        pytest.param([{"op": "add", "path": "/l/x", "value": 1}], 422, id="a list index that is not a number"),
        pytest.param([{"op": "test", "path": "/l", "value": [2, 1]}], 422, id="a failed test"),
        pytest.param([{"op": "add", "path": "/l/0/deeper", "value": 1}], 422, id="a path through a number"),
    ],
)
def test_json_patches_that_cannot_be_applied(operations: Any, code: int) -> None:
    with pytest.raises(StatusError) as error:
        json_patch({"l": [1, 2]}, operations)
    assert error.value.code == code


def spec(*containers: Any, **more: Any) -> Any:
    return {"spec": {"containers": list(containers), **more}}


def test_an_object_is_replaced_or_deleted_by_directive() -> None:
    target = {"spec": {"affinity": {"nodeAffinity": {"x": 1}}, "hostname": "h"}}
    replaced = strategic_patch(target, {"spec": {"affinity": {"$patch": "replace", "podAffinity": {}}}}, POD)
    assert replaced["spec"]["affinity"] == {"podAffinity": {}}
    assert "affinity" not in strategic_patch(target, {"spec": {"affinity": {"$patch": "delete"}}}, POD)["spec"]


def test_lists_without_a_key_are_replaced() -> None:
    target = spec({"name": "a", "command": ["x", "y"]})
    result = strategic_patch(target, spec({"name": "a", "command": ["z"]}), POD)
    assert result["spec"]["containers"][0]["command"] == ["z"]


def test_items_that_the_order_does_not_name_stay_before_what_they_preceded() -> None:
    target = spec(*({"name": name} for name in "abcd"))
    patch = {"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "a"}]}}
    result = strategic_patch(target, patch, POD)["spec"]["containers"]
    assert [each["name"] for each in result] == ["b", "c", "d", "a"]


@pytest.mark.parametrize("patch", [spec({"image": "x"}), {"spec": {"$patch": "explode"}}, spec("text")])
def test_strategic_patches_that_make_no_sense_are_bad_requests(patch: Any) -> None:
    with pytest.raises(StatusError) as error:
        strategic_patch(spec({"name": "a"}), patch, POD)
    assert error.value.code == 400
