"""Label and field selectors."""

import pytest

from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.selectors import object_selector, parse_fields, parse_labels


def test_label_selectors_select_by_text_and_by_object() -> None:
    """Each rule is tested with `purser.core.kubernetes.selectors`."""
    wanted = [{"key": "a", "operator": "In", "values": ["1", "2"]}, {"key": "b", "operator": "DoesNotExist"}]
    for selector in (parse_labels("a in (1,2),!b"), object_selector({"matchExpressions": wanted})):
        assert selector.matches({"a": "2"}) and not selector.matches({"a": "2", "b": ""})


def test_an_empty_selector_selects_everything() -> None:
    assert all(selector.matches({}) for selector in (object_selector(None), object_selector({}), parse_labels("")))


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
