"""The pages on installing, hardening and upgrading against the chart and the code: values, options, words of grants."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from purser.core.grant.disputes import read_disputes
from purser.core.model import Enforcement
from purser.options import settings_of
from purser.scheduler.settings import SchedulerSettings

ROOT = Path(__file__).parents[3]
PAGE, HARDENING, UPGRADING = (
    (ROOT / "docs" / name).read_text() for name in ("install.md", "hardening.md", "upgrade.md")
)
VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/purser/values.yaml").read_text())


def decided() -> Iterator[tuple[str, Any]]:
    """Each value of the table, with the default that it names."""
    table = PAGE.partition("<!-- table: values -->")[2].strip().partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        names, default = (cell.strip() for cell in row.split("|")[1:3])
        yield from ((name, yaml.safe_load(default.strip("`"))) for name in re.findall(r"`([^`]+)`", names))


@pytest.mark.parametrize(("name", "default"), [pytest.param(*each, id=each[0]) for each in decided()])
def test_a_value_to_decide_is_the_charts_with_its_default(name: str, default: object) -> None:
    found: Any = VALUES
    for part in name.split("."):
        found = found[part]
    assert found == default


def test_every_value_that_the_pages_set_is_one_of_the_charts() -> None:
    sections = "|".join(VALUES)
    for name in set(re.findall(rf"`((?:{sections})\.[A-Za-z.]+)", PAGE + HARDENING)):
        found: Any = VALUES
        for part in name.split("."):
            if found == {}:  # its content is checked elsewhere
                break
            found = found[part]


def test_paths_of_other_distributions_are_values_that_the_chart_takes() -> None:
    schema = json.loads((ROOT / "deploy/helm/purser/values.schema.json").read_text())
    table = PAGE.partition("<!-- table: distributions -->")[2].strip().partition("\n\n")[0]
    rows = [re.findall(r"`(/[^`]+)`", row) for row in table.splitlines()[2:]]
    assert len(rows) == 5
    for paths in rows:
        jsonschema.validate({"agent": dict(zip(("kubeletDir", "kubeletConfig"), paths, strict=False))}, schema)


def test_every_option_of_the_scheduler_that_the_pages_name_is_there() -> None:
    known = {each.flag for each in settings_of(SchedulerSettings)}
    named = set(re.findall(r"--(?:webhook|extender)-[a-z-]+", PAGE + HARDENING))
    assert named
    assert named <= known


def test_the_order_of_an_upgrade_names_words_that_older_agents_lack() -> None:
    """What it rests on: a report with one word that is not known counts for nothing."""
    section = UPGRADING.partition("## While versions are mixed")[2].partition("\n## ")[0]
    assert all(f"`{word}`" in section for word in (Enforcement.HAMI_CORE_MEMORY, Enforcement.HAMI_CORE_ADVISORY))
    held = '{"namespace": "a", "pod": "b", "uid": "c", "why": "%s"}'
    assert read_disputes(f'{{"node": "n", "held": [{held % "never-granted"}]}}', "n") is not None
    assert read_disputes(f'{{"node": "n", "held": [{held % "not known yet"}]}}', "n") is None
