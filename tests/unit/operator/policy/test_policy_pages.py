"""Words that the operator's pages explain are ones that the operator says, or reads."""

import re
from pathlib import Path
from typing import Any

import pytest

from purser.core.names import INVENTORY_ANNOTATION, KUBELET_ANNOTATION, MIG_CONFIG_LABEL
from purser.kube.reasons import FailureReason
from purser.operator import names
from purser.operator.order import Operand
from purser.operator.policy import ClusterPolicySpec
from purser.operator.policy.crd import schema_of
from purser.operator.reasons import OperatorReason

ROOT = Path(__file__).parents[4]
PAGES = ("operator.md", "operator-reference.md", "operator-design.md", "driver-upgrades.md")
OPERATOR = "\n".join((ROOT / "docs" / name).read_text() for name in PAGES)
MIGRATING = (ROOT / "docs" / "migrating/gpu-operator.md").read_text()


def test_every_word_of_status_is_one_that_the_operator_says() -> None:
    table = re.findall(r"^\| (`[A-Z].*?) \| ", OPERATOR, re.MULTILINE)
    words = {word for cell in table for word in re.findall(r"`([A-Z]\w+)`", cell)}
    assert len(words) > 12
    reasons = {str(each) for kind in (OperatorReason, FailureReason) for each in kind}
    assert words - reasons == set()


@pytest.mark.parametrize("page", [OPERATOR, MIGRATING], ids=["the operator", "migrating"])
def test_every_key_on_nodes_and_policies_is_one_that_the_operator_knows(page: str) -> None:
    known = {value for value in vars(names).values() if isinstance(value, str) and "/" in value}
    known |= {INVENTORY_ANNOTATION, KUBELET_ANNOTATION, MIG_CONFIG_LABEL}
    known |= {each.deploy_label for each in Operand} | {f"{names.DEPLOY_PREFIX}<operand>"}
    told = set(re.findall(r"\b((?:nvidia\.com|purser\.dev)/[\w.<>-]+[\w>])", page))
    versions = {"purser.dev/v1alpha1", "nvidia.com/v1", "nvidia.com/v1alpha1"}
    assert told - known - versions == set()


def fields(schema: dict[str, Any], path: str = "") -> set[str]:
    below = schema.get("properties") or schema.get("items", {}).get("properties") or {}
    paths = {f"{path}.{name}" if path else name: sub for name, sub in below.items()}
    return set(paths).union(*(fields(sub, where) for where, sub in paths.items()))


def test_every_field_named_with_its_section_is_one_of_a_policy() -> None:
    known = fields(schema_of(ClusterPolicySpec))
    sections = {each.partition(".")[0] for each in known}
    text = re.sub(r"```.*?```", "", OPERATOR, flags=re.DOTALL)
    told = {
        word for word in re.findall(r"`(?:spec\.)?([a-z]\w+(?:\.\w+)+)[:`]", text) if word.split(".")[0] in sections
    }
    of_the_chart = {"operator.enabled", "operator.updateDefinition", "operator.removeStackOnUninstall"}
    assert len(told) > 5
    assert told - known - of_the_chart == set()


def test_the_page_lists_every_incident_that_can_be_replayed() -> None:
    files = {path.name for path in (ROOT / "examples" / "scenarios" / "operator").glob("*.yaml")}
    assert set(re.findall(r"^\| `([\w-]+\.yaml)` \|", OPERATOR, re.MULTILINE)) == files
