"""promtool finds no fault with the chart's alerts, and Prometheus' own engine fires each when it has to."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .kubernetes import RealCluster
from .neighbours import program
from .purser_processes import CHART

ALERTS = CHART / "files/alerts.yaml"

GPU = 'node="n", uuid="GPU-1", reason="why"'
FIRING: dict[str, tuple[tuple[str, ...], str]] = {
    "PurserGpuUnhealthy": ((f"purser_device_healthy{{{GPU}}} 0x200",), "3m"),
    "PurserGpuDegraded": ((f"purser_device_degraded{{{GPU}}} 1x200",), "16m"),
    "PurserGpusDisputed": (('purser_agent_disputed_pods{node="n", kind="held"} 2x200',), "6m"),
    "PurserGpusOvercommitted": (('purser_agent_overcommitted_gpus{node="n"} 1x200',), "2m"),
    "PurserGpuNotMeasured": (('purser_device_measurement_age_seconds{node="n", uuid="GPU-1"} 0+60x200',), "9m"),
    "PurserGrantExceeded": (('purser_agent_audit_findings{node="n", finding="over-memory"} 1x200',), "6m"),
    "PurserForeignGpuProcess": (('purser_agent_audit_findings{node="n", finding="foreign"} 1x200',), "11m"),
    "PurserAgentNotRegistered": (('purser_agent_registered{node="n"} 0x200',), "6m"),
    "PurserAmountsNotListed": (('purser_agent_lists_amounts{node="n"} 0x200',), "6m"),
    "PurserKubeletFactsMissing": (('purser_agent_kubelet_facts_missing{node="n", part="cpus"} 1x200',), "16m"),
    "PurserPodsRejected": (("purser_scheduler_rejected_grants_total 0x5 1x200",), "8m"),
    "PurserNotScheduling": (("other 1x200",), "11m"),
    "PurserPodsNotBound": (('purser_scheduler_bind_failures_total{reason="ApiError"} 0+10x200',), "10m"),
    "PurserPodsPending": (('purser_cluster_pending_pods{namespace="a", reason="why"} 3x200',), "61m"),
    "PurserWebhookChanged": (
        ('purser_scheduler_webhook_configuration{configuration="c", state="missing"} 1x200',),
        "6m",
    ),
    "PurserInvariantViolated": (('purser_agent_invariant_violations_total{invariant="i", node="n"} 1x200',), "2m"),
    "PurserInternalError": (('purser_loop_failures_total{loop="l"} 0x5 1x200',), "8m"),
    "PurserStackNotReady": (("gpu_operator_reconciliation_status -2x200",), "11m"),
    "PurserDriverUpgradeFailed": (("gpu_operator_nodes_upgrades_failed 1x200",), "2m"),
}
"""Series from the beginning, a value a minute, and when the alert fires."""

WELL = (
    f"purser_device_healthy{{{GPU}}} 1x200",
    'purser_agent_registered{node="n"} 1x200',
    'purser_agent_lists_amounts{node="n"} 1x200',
    'purser_cluster_gpus{model="m", state="idle"} 8x200',
    'purser_scheduler_webhook_configuration{configuration="c", state="missing"} 0x200',
    'purser_scheduler_webhook_configuration{configuration="c", state="right"} 1x200',
    "purser_scheduler_disputed_gpus 0x200",
    'purser_scheduler_invariant_violations_total{invariant="i"} 0x200',
    "purser_scheduler_rejected_grants_total 5x200",
    "gpu_operator_reconciliation_status 1x200",
)
"""Of a cluster in which nothing is wrong."""


@pytest.fixture
def promtool(cluster: RealCluster) -> str:
    return program(cluster.binaries, "promtool")


def test_promtool_finds_no_fault_with_the_rules(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_has_to_and_none_where_all_is_well(promtool: str, tmp_path: Path) -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == set(FIRING)
    tests: list[dict[str, Any]] = [_test(series, _counted(name, at, 1)) for name, (series, at) in FIRING.items()]
    for rule in rules:
        if "for" in rule and rule["alert"] != "PurserGpuNotMeasured":  # not before it has lasted
            tests.append(_test(FIRING[rule["alert"]][0], _counted(rule["alert"], "30s", 0)))
    tests.append(_test(WELL, {"expr": "count(ALERTS) or vector(0)", "eval_time": "100m", "exp_samples": [_sample(0)]}))
    file = tmp_path / "alerts.test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _test(series: tuple[str, ...], expectation: dict[str, Any]) -> dict[str, Any]:
    parted = [each.rpartition("} ") if "}" in each else each.partition(" ") for each in series]
    return {
        "interval": "1m",
        "input_series": [{"series": f"{name}{mark.strip()}", "values": values} for name, mark, values in parted],
        "promql_expr_test": [expectation],
    }


def _counted(alert: str, at: str, count: int) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    return {"expr": expression, "eval_time": at, "exp_samples": [_sample(count)]}


def _sample(value: int) -> dict[str, Any]:
    return {"labels": "{}", "value": value}
