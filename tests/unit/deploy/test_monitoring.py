"""Dashboards and alerts are what scripts/generate_monitoring.py makes, name metrics that there are, and come with the
chart. What Prometheus makes of them, a real one says (tests/cluster/test_with_prometheus.py)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.scripts import script
from tests.unit.deploy.test_helm_chart import render

ROOT = Path(__file__).parents[3]
MONITORING = script("generate_monitoring")
ALERTS = yaml.safe_load((ROOT / "deploy/helm/purser/files/alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
METRIC = re.compile(r"\b(?:purser|gpu_operator)_[a-z]+_[a-z_]+\b")


def queries() -> list[str]:
    panels = [panel for each in MONITORING.DASHBOARDS for panel in each.panels]
    variables = [query for each in MONITORING.DASHBOARDS for _, query in each.variables]
    return [query for panel in panels for query, _ in panel.queries] + variables + [rule["expr"] for rule in RULES]


def test_what_is_committed_is_what_the_script_writes() -> None:
    for path, text in MONITORING.written(ROOT).items():
        assert path.read_text() == text, "run scripts/generate_monitoring.py"
    assert sorted((ROOT / "deploy/dashboards").glob("*.json")) != []


def test_every_metric_of_a_query_is_one_that_purser_exports() -> None:
    exported = set(METRIC.findall((ROOT / "docs/metrics.md").read_text()))
    named = {re.sub(r"_bucket$", "", name) for query in queries() for name in METRIC.findall(query)}
    assert len(named) > 30
    assert named - exported == set()


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 15
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "description", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        for page in re.findall(r"docs/[a-z-]+\.md", rule["annotations"]["action"]):
            assert (ROOT / page).exists(), page


def test_panels_of_a_dashboard_do_not_overlap() -> None:
    for each in MONITORING.DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in MONITORING.dashboard(each)["panels"]:
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert max(x for x, _ in cells) < MONITORING.COLUMNS, panel["title"]
            assert not cells & taken, panel["title"]
            taken |= cells


@pytest.mark.parametrize("runbooks", ["", "https://docs.example/alerts"])
def test_the_chart_brings_alerts_and_dashboards_where_it_is_asked_to(runbooks: str) -> None:
    metrics: dict[str, Any] = {
        "rules": {"enabled": True, "labels": {"release": "r"}, "runbooks": runbooks},
        "dashboards": {"enabled": True},
    }
    documents = render({"metrics": metrics})
    [rule] = [each for each in documents if each["kind"] == "PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "r"
    for group in rule["spec"]["groups"]:
        for each in group["rules"]:
            link = each["annotations"].pop("runbook_url", "")
            assert link == (f"{runbooks}#{each['alert'].lower()}" if runbooks else "")
            assert f"\n## {each['alert']}\n" in (ROOT / "docs/alerts.md").read_text()
    assert rule["spec"] == ALERTS
    pages = [each for each in documents if "grafana_dashboard" in each["metadata"].get("labels", {})]
    found = {name: json.loads(text) for page in pages for name, text in page["data"].items()}
    assert found == {f"purser-{each.name}.json": MONITORING.dashboard(each) for each in MONITORING.DASHBOARDS}


def test_without_being_asked_the_chart_brings_neither() -> None:
    documents = render({})
    assert "PrometheusRule" not in {each["kind"] for each in documents}
    assert not any("dashboard" in each["metadata"]["name"] for each in documents)
