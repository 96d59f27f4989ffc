"""docs/pods.md has every word that a pod may say, resources and policies; docs/policies.md what policies are after."""

import re
from enum import StrEnum
from pathlib import Path

import pytest

from purser.core.dialects import RESOURCES
from purser.core.model import GpuPolicy, NodePolicy

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("words", "head"), [(NodePolicy, "node policy"), (GpuPolicy, "GPU policy")])
def test_the_tables_for_pods_have_every_word_and_no_other(words: type[StrEnum], head: str) -> None:
    _, found, after = (DOCS / "pods.md").read_text().partition(f"\n| {head} |")
    assert found
    rows = [line.split("|")[1] for line in after.partition("\n\n")[0].splitlines()[2:]]
    named = [word for row in rows for word in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted([*words, *(["topology"] if words is GpuPolicy else [])])


@pytest.mark.parametrize("word", NodePolicy)
def test_what_a_node_policy_is_after_is_reported(word: NodePolicy) -> None:
    page = (DOCS / "policies.md").read_text()
    assert re.search(rf"^(\| |## )`{word}`( \||$)", page, re.MULTILINE)


@pytest.mark.parametrize("resource", sorted(RESOURCES))
def test_what_a_resource_asks_for_is_reported(resource: str) -> None:
    assert re.search(rf"^\| (`[^|]*`, )?`{resource}: \w+`", (DOCS / "pods.md").read_text(), re.MULTILINE)
