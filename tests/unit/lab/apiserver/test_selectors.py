"""Label and field selectors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.selectors import label_predicate, object_selector, parse_fields, parse_labels

LABELS = st.dictionaries(st.sampled_from(["a", "b", "x.dev/c"]), st.sampled_from(["", "1", "2"]))


@given(LABELS, LABELS)
def test_equality_selectors_mean_that_all_pairs_are_there(labels: Any, wanted: Any) -> None:
    text = ",".join(f"{key}={value}" for key, value in wanted.items())
    assert label_predicate(parse_labels(text))(labels) == (wanted.items() <= labels.items())
    assert object_selector({"matchLabels": wanted})(labels) == (wanted.items() <= labels.items())


@given(LABELS, st.sampled_from(["a", "b"]), st.lists(st.sampled_from(["1", "2"]), min_size=1))
def test_in_and_notin_are_opposites(labels: Any, key: str, values: list[str]) -> None:
    listed = ", ".join(values)
    inside = label_predicate(parse_labels(f"{key} in ({listed})"))(labels)
    outside = label_predicate(parse_labels(f"{key} notin ({listed})"))(labels)
    assert inside != outside
    assert inside == (labels.get(key) in values)


@given(LABELS)
def test_text_and_objects_say_the_same(labels: Any) -> None:
    text = label_predicate(parse_labels("a in (1,2),!b,x.dev/c notin (2)"))
    expressions = [
        {"key": "a", "operator": "In", "values": ["1", "2"]},
        {"key": "b", "operator": "DoesNotExist"},
        {"key": "x.dev/c", "operator": "NotIn", "values": ["2"]},
    ]
    assert text(labels) == object_selector({"matchExpressions": expressions})(labels)


def test_an_empty_selector_selects_everything() -> None:
    assert object_selector(None)({}) and object_selector({})({"a": "1"}) and label_predicate(parse_labels(""))({})


@pytest.mark.parametrize("text", ["a b", "=x", "a=(", "!", "a in", "a in (x"])
def test_nonsense_is_a_bad_request(text: str) -> None:
    with pytest.raises(StatusError) as error:
        parse_labels(text)
    assert error.value.code == 400


def test_an_unknown_operator_is_a_bad_request() -> None:
    with pytest.raises(StatusError):
        object_selector({"matchExpressions": [{"key": "a", "operator": "Like"}]})


@pytest.mark.parametrize(
    ("text", "fields", "holds"),
    [
        ("spec.nodeName=n", {"spec.nodeName": "n"}, True),
        ("spec.nodeName==n", {"spec.nodeName": "m"}, False),
        ("spec.nodeName!=n", {"spec.nodeName": "m"}, True),
        ("spec.nodeName=", {}, True),
        ("spec.nodeName!=", {}, False),
        ("spec.nodeName=n,status.phase!=Failed", {"spec.nodeName": "n", "status.phase": "Failed"}, False),
    ],
)
def test_fields(text: str, fields: dict[str, str], holds: bool) -> None:
    terms = parse_fields(text, ("spec.nodeName", "status.phase"))
    assert all(term.holds(fields) for term in terms) is holds


@pytest.mark.parametrize("text", ["spec.other=1", "spec.nodeName", "=x"])
def test_fields_that_are_not_indexed_are_refused(text: str) -> None:
    with pytest.raises(StatusError) as error:
        parse_fields(text, ("spec.nodeName",))
    assert error.value.code == 400
