"""Writes the chart's Grafana dashboards, and the page of its alerts: `python scripts/generate_monitoring.py`.

A dashboard is a few rows of panels, a panel a title and its queries; where it stands follows from its width. All else
that Grafana wants to know is the same for each of them and stands here once. `deploy/dashboards` is a link to where
they are written.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[1]
FOLDER = Path("deploy/helm/purser/files/dashboards")
ALERTS = Path("deploy/helm/purser/files/alerts.yaml")
PAGE = Path("docs/alerts.md")
SCHEMA_VERSION = 39
"""Of Grafana 11; later ones migrate it."""

INTRODUCTION = """\
<!-- Made by scripts/generate_monitoring.py from deploy/helm/purser/files/alerts.yaml: change it there. -->

# Alerts

This page lists the alerts of the chart's PrometheusRule (`metrics.rules.enabled`), and what to do when one fires.
Without the Prometheus operator, give Prometheus the file deploy/helm/purser/files/alerts.yaml as it is.
"""
COLUMNS = 24
HEIGHT = 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One picture. ``queries``: an expression and the legend of its series. ``unit`` as Grafana names units."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    stacked: bool = False
    about: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One page. ``variables``: name and the query of its values."""

    name: str
    title: str
    about: str
    panels: Sequence[Panel]
    variables: Sequence[tuple[str, str]] = ()


_NODE = ("node", "label_values(purser_device_info, node)")
_NAMESPACE = ("namespace", "label_values(purser_grant_memory_bytes, namespace)")
_POD = ("pod", 'label_values(purser_grant_memory_bytes{namespace=~"$namespace"}, pod)')

_GPU_NAME = '* on (node, uuid) group_left (index, model) purser_device_info{node=~"$node"}'
"""Gives a GPU's series its index and model; ``node`` is the PodMonitor's label."""


_WITH_MODEL = "on (node, uuid) group_left (model) purser_device_info"

_WITH_POLICY = (
    'on (namespace, pod) group_left (policy) (group by (namespace, pod, policy) (purser_grant_memory_bytes{policy!=""})'
    ' or group by (namespace, pod) (purser_grant_memory_bytes{policy=""})'
    " * on () group_left (policy) max by (policy) (purser_cluster_default_policy))"
)
"""Agents know the policy that a pod names, and the scheduler its own, which counts where there is none."""


def _by_gpu(metric: str) -> tuple[str, str]:
    """A query of each GPU's own series, with its legend."""
    return f'{metric}{{node=~"$node"}} {_GPU_NAME}', "{{node}} {{index}} {{model}}"


_HELD = 'namespace=~"$namespace", pod=~"$pod"'

DASHBOARDS = (
    Dashboard(
        "cluster",
        "Purser / Cluster",
        "Which GPUs there are, who holds them, who waits and why.",
        (
            Panel("GPUs", [("sum(purser_cluster_gpus)", "GPUs")], kind="stat", width=4),
            Panel("Idle", [('sum(purser_cluster_gpus{state="idle"}) or vector(0)', "idle")], kind="stat", width=4),
            Panel(
                "Unhealthy or disputed",
                [('sum(purser_cluster_gpus{state=~"unhealthy|disputed"}) or vector(0)', "GPUs")],
                kind="stat",
                width=4,
            ),
            Panel(
                "Memory granted",
                [("sum(purser_cluster_granted_memory_bytes) / sum(purser_cluster_memory_bytes)", "granted")],
                "percentunit",
                "stat",
                4,
            ),
            Panel(
                "Granted memory in use",
                [("sum(purser_device_memory_used_bytes) / sum(purser_device_granted_memory_bytes)", "used")],
                "percentunit",
                "stat",
                4,
            ),
            Panel("Pending pods", [("sum(purser_cluster_pending_pods) or vector(0)", "pods")], kind="stat", width=4),
            Panel("GPUs by state", [("sum by (state) (purser_cluster_gpus)", "{{state}}")], stacked=True),
            Panel(
                "Granted memory by namespace",
                [("sum by (namespace) (purser_cluster_granted_memory_bytes)", "{{namespace}}")],
                "bytes",
                stacked=True,
            ),
            Panel(
                "Used memory by namespace",
                [("sum by (namespace) (purser_container_memory_used_bytes) or vector(0)", "{{namespace}}")],
                "bytes",
                stacked=True,
                about="Measured on the nodes, by the processes of pods.",
            ),
            Panel(
                "Memory by model",
                [
                    (f"sum by (model) (purser_container_memory_used_bytes * {_WITH_MODEL})", "{{model}} used"),
                    ("sum by (model) (purser_cluster_granted_memory_bytes)", "{{model}} granted"),
                    ("sum by (model) (purser_cluster_memory_bytes)", "{{model}}"),
                ],
                "bytes",
            ),
            Panel(
                "Used and granted memory by policy",
                [
                    (f"sum by (policy) (purser_container_memory_used_bytes * {_WITH_POLICY})", "{{policy}} used"),
                    ("sum by (policy) (purser_cluster_granted_memory_bytes)", "{{policy}} granted"),
                ],
                "bytes",
                about="By the policy for nodes by which the pods were placed.",
            ),
            Panel(
                "Granted compute by namespace",
                [("sum by (namespace) (purser_cluster_granted_cores_ratio)", "{{namespace}}")],
                stacked=True,
                about="In GPUs; MIG devices count by their slices, shares without a compute limit as 0.",
            ),
            Panel(
                "Used and granted memory by namespace and model",
                [
                    (
                        f"sum by (namespace, model) (purser_container_memory_used_bytes * {_WITH_MODEL})",
                        "{{namespace}} {{model}} used",
                    ),
                    (
                        "sum by (namespace, model) (purser_cluster_granted_memory_bytes)",
                        "{{namespace}} {{model}} granted",
                    ),
                ],
                "bytes",
            ),
            Panel(
                "Used and granted compute by namespace and model",
                [
                    (
                        f"sum by (namespace, model) (purser_container_utilization_ratio * {_WITH_MODEL})",
                        "{{namespace}} {{model}} used",
                    ),
                    (
                        "sum by (namespace, model) (purser_cluster_granted_cores_ratio)",
                        "{{namespace}} {{model}} granted",
                    ),
                ],
                about="In GPUs. Used compute has no MIG devices: the driver does not report theirs by process.",
            ),
            Panel(
                "Idle GPUs, by reason they are unused",
                [("sum by (cause) (purser_cluster_idle_gpus)", "{{cause}}")],
                stacked=True,
                about="For pods like those that came lately, in GPUs. All but usable are fragments.",
            ),
            Panel(
                "Pending pods, by reason",
                [("sum by (reason) (purser_cluster_pending_pods)", "{{reason}}")],
                stacked=True,
            ),
            Panel(
                "GPUs and shares, requested and granted",
                [
                    ("sum(purser_cluster_granted_gpus or purser_cluster_pending_gpus)", "requested"),
                    ("sum(purser_cluster_granted_gpus)", "granted"),
                ],
                about="A share of a GPU counts as one.",
            ),
            Panel(
                "GPUs requested by pending pods",
                [("sum by (namespace) (purser_cluster_pending_gpus)", "{{namespace}}")],
                stacked=True,
            ),
            Panel(
                "Extender response time, 99th percentile",
                [
                    (
                        "histogram_quantile(0.99, sum by (verb, le)"
                        " (rate(purser_scheduler_request_seconds_bucket[$__rate_interval])))",
                        "{{verb}}",
                    )
                ],
                "s",
            ),
            Panel(
                "Pods that failed to bind",
                [
                    (
                        "sum by (reason) (rate(purser_scheduler_bind_failures_total[$__rate_interval])) or vector(0)",
                        "{{reason}}",
                    ),
                    ("sum(rate(purser_scheduler_rejected_grants_total[$__rate_interval]))", "rejected by kubelet"),
                ],
                "ops",
            ),
            Panel("Disputed GPUs", [("sum(purser_scheduler_disputed_gpus)", "GPUs")]),
        ),
    ),
    Dashboard(
        "node",
        "Purser / Node",
        "The GPUs of nodes: load, memory, health. Nodes are the PodMonitor's label node.",
        (
            Panel(
                "Healthy GPUs",
                [
                    (
                        'sum(purser_device_healthy{node=~"$node"}) / count(purser_device_healthy{node=~"$node"})',
                        "healthy",
                    )
                ],
                "percentunit",
                "stat",
                6,
            ),
            Panel(
                "Registered with kubelet",
                [('min(purser_agent_registered{node=~"$node"})', "registered")],
                kind="stat",
                width=6,
            ),
            Panel(
                "Memory in use",
                [
                    (
                        'sum(purser_device_memory_used_bytes{node=~"$node"})'
                        ' / sum(purser_device_memory_bytes{node=~"$node"})',
                        "used",
                    )
                ],
                "percentunit",
                "stat",
                6,
            ),
            Panel(
                "Pods over their grants, and foreign processes",
                [('sum by (finding) (purser_agent_audit_findings{node=~"$node"})', "{{finding}}")],
                kind="stat",
                width=6,
            ),
            Panel(
                "Utilization",
                [_by_gpu("purser_device_utilization_ratio")],
                "percentunit",
            ),
            Panel(
                "Memory by owner",
                [('sum by (owner) (purser_device_memory_owner_bytes{node=~"$node"})', "{{owner}}")],
                "bytes",
                stacked=True,
                about="Processes of pods, foreign processes, the driver, idle: together all memory.",
            ),
            Panel(
                "Memory granted",
                [_by_gpu("purser_device_granted_memory_bytes")],
                "bytes",
            ),
            Panel(
                "Compute granted",
                [_by_gpu("purser_device_granted_cores_ratio")],
                "percentunit",
            ),
            Panel(
                "Slots granted",
                [_by_gpu("purser_device_granted_slots")],
            ),
            Panel(
                "Temperature",
                [_by_gpu("purser_device_temperature_celsius")],
                "celsius",
            ),
            Panel(
                "Power",
                [_by_gpu("purser_device_power_watts")],
                "watt",
            ),
            Panel(
                "Time since the last measurement",
                [_by_gpu("purser_device_measurement_age_seconds")],
                "s",
            ),
            Panel(
                "Refused kubelet calls",
                [
                    (
                        'sum by (node, reason) (rate(purser_agent_refusals_total{node=~"$node"}[$__rate_interval]))'
                        " or vector(0)",
                        "{{node}} {{reason}}",
                    )
                ],
                "ops",
            ),
            Panel(
                "GPUs with problems",
                [
                    ('sum by (node) (purser_device_healthy{node=~"$node"} == bool 0)', "{{node}} unhealthy"),
                    ('sum by (node) (purser_device_degraded{node=~"$node"}) or vector(0)', "{{node}} degraded"),
                ],
            ),
        ),
        (_NODE,),
    ),
    Dashboard(
        "pod",
        "Purser / Pods",
        "What pods were granted, and what of it they use.",
        (
            Panel(
                "Memory granted",
                [(f"sum(purser_grant_memory_bytes{{{_HELD}}})", "granted")],
                "bytes",
                "stat",
                8,
            ),
            Panel(
                "Memory used",
                [(f"sum(purser_container_memory_used_bytes{{{_HELD}}}) or vector(0)", "used")],
                "bytes",
                "stat",
                8,
            ),
            Panel("Containers with GPUs", [(f"count(purser_grant_memory_bytes{{{_HELD}}})", "")], kind="stat", width=8),
            Panel(
                "Used and granted memory",
                [
                    (
                        f"sum by (namespace, pod, container) (purser_container_memory_used_bytes{{{_HELD}}})",
                        "{{namespace}}/{{pod}} {{container}} used",
                    ),
                    (
                        f"sum by (namespace, pod, container) (purser_grant_memory_bytes{{{_HELD}}})",
                        "{{namespace}}/{{pod}} {{container}} granted",
                    ),
                ],
                "bytes",
                width=24,
            ),
            Panel(
                "Compute used, in GPUs",
                [
                    (
                        f"sum by (namespace, pod, container) (purser_container_utilization_ratio{{{_HELD}}})"
                        " or vector(0)",
                        "{{namespace}}/{{pod}} {{container}}",
                    )
                ],
            ),
            Panel(
                "Compute granted, in GPUs",
                [
                    (
                        f"sum by (namespace, pod, container) (purser_grant_cores_ratio{{{_HELD}}})",
                        "{{namespace}}/{{pod}} {{container}}",
                    )
                ],
            ),
            Panel(
                "Enforcement of shares",
                [(f"count by (enforcement) (purser_grant_memory_bytes{{{_HELD}}})", "{{enforcement}}")],
                stacked=True,
            ),
            Panel(
                "Unused granted memory",
                [
                    (
                        f"sum by (namespace, pod) (purser_grant_memory_bytes{{{_HELD}}})"
                        f" - (sum by (namespace, pod) (purser_container_memory_used_bytes{{{_HELD}}})"
                        f" or 0 * sum by (namespace, pod) (purser_grant_memory_bytes{{{_HELD}}}))",
                        "{{namespace}}/{{pod}}",
                    )
                ],
                "bytes",
            ),
        ),
        (_NAMESPACE, _POD),
    ),
    Dashboard(
        "operator",
        "Purser / Operator",
        "How far the GPU stack and driver upgrades are.",
        (
            Panel("GPU nodes", [("max(gpu_operator_gpu_nodes_total)", "nodes")], kind="stat", width=6),
            Panel(
                "Reconciliation (1: ready, 0: not yet, -1: no policy, -2: failed)",
                [("max(gpu_operator_reconciliation_status)", "status")],
                kind="stat",
                width=6,
            ),
            Panel(
                "Failed upgrades",
                [("max(gpu_operator_nodes_upgrades_failed) or vector(0)", "nodes")],
                kind="stat",
                width=6,
            ),
            Panel(
                "Upgrades in progress",
                [("max(gpu_operator_nodes_upgrades_in_progress) or vector(0)", "nodes")],
                kind="stat",
                width=6,
            ),
            Panel(
                "Nodes, by operand state",
                [("max by (operand, state) (purser_operator_node_operands) or vector(0)", "{{operand}} {{state}}")],
                width=24,
            ),
            Panel(
                "Driver upgrades",
                [
                    ("max(gpu_operator_nodes_upgrades_done) or vector(0)", "done"),
                    ("max(gpu_operator_nodes_upgrades_in_progress) or vector(0)", "in progress"),
                    ("max(gpu_operator_nodes_upgrades_pending) or vector(0)", "pending"),
                    ("max(gpu_operator_nodes_upgrades_failed) or vector(0)", "failed"),
                ],
                stacked=True,
            ),
            Panel(
                "API server writes",
                [
                    (
                        "sum by (verb, kind) (rate(purser_operator_writes_total[$__rate_interval])) or vector(0)",
                        "{{verb}} {{kind}}",
                    )
                ],
                "ops",
            ),
            Panel(
                "Reconciliation duration, 99th percentile",
                [
                    (
                        "histogram_quantile(0.99, sum by (le)"
                        " (rate(purser_operator_round_seconds_bucket[$__rate_interval])))",
                        "round",
                    )
                ],
                "s",
            ),
            Panel(
                "Failed reconciliations",
                [("sum(rate(gpu_operator_reconciliation_failed_total[$__rate_interval]))", "failed")],
                "ops",
            ),
        ),
    ),
)


def main(repository: Path) -> None:
    """Write all of them."""
    for path, text in written(repository).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def written(repository: Path) -> dict[Path, str]:
    """What each file has to be."""
    dashboards = {repository / FOLDER / f"purser-{each.name}.json": _text(dashboard(each)) for each in DASHBOARDS}
    return dashboards | {repository / PAGE: page(yaml.safe_load((repository / ALERTS).read_text()))}


def page(alerts: dict[str, Any]) -> str:
    """A section for each alert: links of alerts lead to them."""
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    return INTRODUCTION + "".join(map(_section, rules))


def _section(rule: dict[str, Any]) -> str:
    told, severity = rule["annotations"], rule["labels"]["severity"]
    lasting = f" for {rule['for']}" if "for" in rule else ""
    return (
        f"\n## {rule['alert']}\n\n{told['summary']}\n\n**What to do:** {linked(told['action'])}\n\n"
        f"Severity {severity}. It fires when this holds{lasting}:\n\n```text\n{rule['expr']}\n```\n"
    )


def linked(sentence: str) -> str:
    """With links to the pages that it names."""
    return re.sub(r"docs/([a-z-]+\.md)", r"[\1](\1)", sentence)


def dashboard(of: Dashboard) -> dict[str, Any]:
    """As Grafana reads it."""
    return {
        "uid": f"purser-{of.name}",
        "title": of.title,
        "description": of.about,
        "tags": ["purser", "gpu"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_data_source(), *(_variable(name, query) for name, query in of.variables)]},
        "panels": list(_placed(of.panels)),
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """In rows, from left to right."""
    x = y = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + _height(panels[number - 2])
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": _height(panel)})
        x += panel.width


def _height(panel: Panel) -> int:
    return HEIGHT // 2 if panel.kind == "stat" else HEIGHT


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        custom = {"fillOpacity": 30 if panel.stacked else 0, "showPoints": "never"}
        custom |= {"stacking": {"mode": "normal", "group": "A"}} if panel.stacked else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if panel.kind == "timeseries" else {},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
