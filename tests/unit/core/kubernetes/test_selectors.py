"""Label selectors, as objects and as text."""

from typing import Any

import pytest

from purser.core.kubernetes.selectors import SelectorError, of_object, parse
from purser.operator.policy import PolicyError, decode

LABELS = {"app": "train", "tier": "a", "purser.dev/x": "", "gpus": "4"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("  ", True),
        ("app=train", True),
        ("app==train", True),
        ("app = train", True),
        ("app=serve", False),
        ("app!=serve", True),
        ("app!=train", False),
        ("none!=train", True),
        ("app", True),
        ("none", False),
        ("!none", True),
        ("! app", False),
        ("tier in (a, b)", True),
        ("tier in (b,c)", False),
        ("tier notin (b,c)", True),
        ("none notin (b)", True),
        ("purser.dev/x=", True),
        ("purser.dev/x", True),
        ("app=train,tier in (a,b),!none", True),
        ("app=train,tier in (a,b),none", False),
        ("gpus>3,gpus < 5", True),
        ("gpus>4", False),
        ("gpus<4", False),
        ("app>1", False),
        ("none<1", False),
    ],
)
def test_text_selects(text: str, matches: bool) -> None:
    assert parse(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["=", "a=b=c", "a in b", "a in (b", "a b", ",", "a,,b", "-a", "a>b", "app=train,"])
def test_text_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SelectorError, match="is not a label selector"):
        parse(text)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({"matchLabels": {"app": "train", "tier": "a"}}, True),
        ({"matchLabels": {"app": "train", "tier": "b"}}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists", "values": None}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "none", "operator": "Exists"}]}, False),
    ],
)
def test_an_object_selects(selector: dict[str, Any], matches: bool) -> None:
    assert of_object(selector).matches(LABELS) is matches


def test_an_operator_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SelectorError, match="matchExpressions"):
        of_object({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})


@pytest.mark.parametrize("section", ["drain", "waitForCompletion"])
def test_a_policy_with_such_a_text_is_refused(section: str) -> None:
    spec = {"driver": {"upgradePolicy": {section: {"podSelector": "app in train"}}}}
    with pytest.raises(PolicyError, match=rf"spec.driver.upgradePolicy.{section}.podSelector: 'app in train' is no"):
        decode({"metadata": {"name": "p"}, "spec": spec})
