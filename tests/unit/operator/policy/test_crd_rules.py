"""The CRD takes exactly the policies that the operator takes: its rules are compiled and evaluated by Google's CEL."""

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.operator.crd_judge import RULES, holds, matches, program, raw, refusals, rules, schemas

from purser.core.kubernetes.selectors import PATTERN, SelectorError, parse
from purser.operator.policy import PolicyError, decode


def operator_says(spec: dict[str, Any]) -> str:
    """Why the operator refuses it; empty: it does not."""
    try:
        decode({"metadata": {"name": "p"}, "spec": spec})
    except PolicyError as error:
        return str(error)
    return ""


def test_there_are_rules_and_all_are_cel() -> None:
    found = list(rules(raw(), "spec"))
    assert {path for path, _ in found} == {
        "spec",
        "spec.driver.upgradePolicy.maxUnavailable",
        "spec.daemonsets.rollingUpdate.maxUnavailable",
        "spec.migManager",
        "spec.driver.profiles[].nodeSelector",
        "spec.driver.requirements[].nodeSelector",
        "spec.driver.upgradePolicy.canary.nodeSelector",
    }
    for path, each in found:
        assert each["message"], path
        program(each["rule"])


def test_rules_hold_for_the_defaults_of_their_schemas() -> None:
    """Where one does not, API servers refuse the whole CRD: within a default they fill in no defaults."""
    with_both = [each for each in schemas(raw()) if "default" in each and RULES in each]
    assert with_both
    for each in with_both:
        for rule in each[RULES]:
            assert holds(rule["rule"], each["default"]), rule["rule"]


def test_a_rule_that_is_no_cel_would_be_found() -> None:
    with pytest.raises(RuntimeError):
        program("self +")


# --- specs that are mostly good: a few fields, each set to something that is good, bad or odd

TEXTS = (
    *("", "a", "A b", "a-", "x" * 41, "a\n", "25%", "25%\n", "0%", "00%", "05%", "100%", "101%", "%", "1"),
    *("500m", "1Gi", "1Gi\n", "-1", "1e3", "lots", "570.86.10", "570.", "570\n", "v570", "all-disabled"),
    *(
        "app=train",
        "app = train , !x",
        "tier in (a,b)",
        "tier notin ()",
        "!",
        ":",
        "a b",
        "x,,y",
        ",",
        " ",
        "app=train\n",
    ),
    *("\u00a0", "٣", "٣%"),
)
KEYS = ("a", "b", "nvidia.com/gpu.product", "purser.dev/runtime", "nvidia.com/gpu.deploy.driver")
NUMBERS = (-1, 0, 1, 5, 1000, 1001, 2**31)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Of this type, or (seldom) of another."""
    wrong = st.sampled_from([True, 3, "x", [], {}, None])
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.just(True))
    match schema["type"]:
        case "string":
            right: st.SearchStrategy[Any] = st.sampled_from((*schema.get("enum", ()), *TEXTS))
        case "integer":
            right = st.sampled_from(NUMBERS)
        case "boolean":
            right = st.booleans()
        case "array":
            right = st.lists(values(schema["items"]), max_size=3)
        case _ if "additionalProperties" in schema:
            right = st.dictionaries(st.sampled_from(KEYS), values(schema["additionalProperties"]), max_size=2)
        case _:
            return objects(schema)
    return st.one_of(right, right, right, right, wrong)


def objects(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """With all that is required, and some of the rest."""
    properties = schema["properties"]
    needed = {name: values(properties[name]) for name in schema.get("required", ())}
    optional = {name: values(sub) for name, sub in properties.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional=optional)


def places(schema: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field that is not a section."""
    if "properties" not in schema:
        return [(path, schema)]
    return [each for name, sub in schema["properties"].items() for each in places(sub, (*path, name))]


FIELDS = places(raw())
TELLING = [
    field
    for field in FIELDS
    if set(field[1]) & {"pattern", "minimum", "enum", "items", RULES} or "additionalProperties" in field[1]
]
"""Fields of which not every value is good: they come more often."""


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    fields = st.one_of(st.sampled_from(FIELDS), st.sampled_from(TELLING), st.sampled_from(TELLING))
    for path, schema in draw(st.lists(fields, min_size=1, max_size=4)):
        at = spec
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = draw(values(schema))
    return spec


def policy(**upgrade: Any) -> dict[str, Any]:
    return {"driver": {"upgradePolicy": upgrade}}


ONE = {"name": "A", "value": "1"}


@examples(150)
@given(specs())
@example(policy(maxUnavailable=0))
@example(policy(maxUnavailable=-1))
@example(policy(maxUnavailable="0%"))
@example(policy(maxUnavailable="00%"))
@example(policy(maxUnavailable="25%\n"))
@example({"daemonsets": {"rollingUpdate": {"maxUnavailable": 0}}})
@example({"migManager": {"enabled": False, "config": {"default": "all-disabled"}}})
@example({"migManager": {"enabled": False, "config": None}})
@example({"migManager": {"enabled": True, "config": {"default": "all-disabled"}}})
@example({"migManager": {"gpuPodTimeoutSeconds": -1}})
@example({"discovery": {"goneAfterSeconds": -1}})
@example({"toolkit": {"env": [ONE, ONE]}})
@example({"toolkit": {"resources": {"limits": {"cpu": "lots"}}}})
@example({"driver": {"requirements": [{"nodeSelector": {}, "minimum": "570\n"}]}})
@example({"driver": {"profiles": [{"name": f"p{number}", "nodeSelector": {"a": "b"}} for number in range(101)]}})
@example({"driver": {"requirements": [{"nodeSelector": {}}] * 101}})
@example({"driver": {"profiles": [{"name": "a", "nodeSelector": {"a": "b"}}] * 2}})
@example(policy(drain={"podSelector": ":"}))
@example(policy(waitForCompletion={"podSelector": "app in (a,b), !x"}))
def test_the_crd_takes_what_the_operator_takes_and_nothing_else(spec: dict[str, Any]) -> None:
    said = operator_says(copy.deepcopy(spec))
    refused = refusals(copy.deepcopy(spec))
    assert bool(said) == bool(refused), (said, refused)


@pytest.mark.parametrize("bound", [0, -1, "0%", "00%", "101%", "5", "25%\n"], ids=repr)
@pytest.mark.parametrize("section", ["upgrade", "update"])
def test_a_bound_under_which_nothing_would_ever_happen_is_refused_by_both(bound: int | str, section: str) -> None:
    daemons = {"daemonsets": {"rollingUpdate": {"maxUnavailable": bound}}}
    spec = policy(maxUnavailable=bound) if section == "upgrade" else daemons
    assert "maxUnavailable" in operator_says(spec)
    assert "maxUnavailable" in refusals(spec)[0]


OWN_LABELS = (
    "nvidia.com/gpu.deploy.device-plugin",
    "nvidia.com/gpu-driver-upgrade-state",
    "nvidia.com/mig.config.state",
    "purser.dev/driver-pool",
    "purser.dev/runtime",
)


@pytest.mark.parametrize("label", OWN_LABELS)
@pytest.mark.parametrize("section", ["profiles", "requirements", "canary"])
def test_a_selector_by_what_the_operator_itself_writes_is_refused_by_both(label: str, section: str) -> None:
    """Nodes would come under it and leave it by what follows from it, for ever."""
    nodes = {"nodeSelector": {"a": "b", label: "true"}}
    lists = {"profiles": [{"name": "p", **nodes}], "requirements": [nodes]}
    spec = policy(canary=nodes) if section == "canary" else {"driver": {section: lists[section]}}
    assert f"by {label}" in operator_says(spec)
    assert "nodeSelector" in refusals(spec)[0]


@pytest.mark.parametrize("label", ["nvidia.com/gpu.present", "nvidia.com/gpu.product", "nvidia.com/mig.config"])
def test_a_selector_by_what_a_node_is_or_people_write_is_taken_by_both(label: str) -> None:
    spec = {"driver": {"profiles": [{"name": "p", "nodeSelector": {label: "true"}}]}}
    assert (operator_says(spec), refusals(spec)) == ("", [])


@examples(150)
@given(st.text("ab=!,() \t\r\n\u00a0inot-/.", max_size=14))
@example("a in (b, c),!d , e!=f,g notin(),h==")
@example("a=b\n")
@example("a in (b,c")
@example("a,b)")
def test_a_selector_is_what_its_pattern_says(text: str) -> None:
    try:
        parse(text)
        good = True
    except SelectorError:
        good = False
    assert matches(PATTERN, text) is good
