"""How Prometheus finds the metrics, and alerts: objects of the Prometheus operator, where its kinds are there."""

from purser.operator.manifests import dcgm, validator
from purser.operator.manifests.parts import OPERATOR, Raw, owned, without_empty
from purser.operator.model import GAUGE_PREFIX, Gauge, Rendered, RenderInputs
from purser.operator.order import Operand
from purser.operator.policy.fields import Relabeling, ServiceMonitor

_API = "monitoring.coreos.com/v1"
OPERATOR_SERVICE = "purser-operator"
"""The Service of the operator's own metrics, and the value of its label app; the Helm chart makes it."""


def render(wanted: RenderInputs) -> list[Rendered]:
    """Monitors that are enabled, and alerts."""
    if not wanted.service_monitors:
        return []
    return [*_monitors(wanted), *_rules(wanted)]


def _monitors(wanted: RenderInputs) -> list[Rendered]:
    spec = wanted.policy.spec
    exporter, own = spec.dcgm_exporter.service_monitor, spec.operator.metrics.service_monitor
    found = []
    if Operand.DCGM_EXPORTER in spec.enabled and exporter.enabled:
        found.append(_monitor(wanted, Operand.DCGM_EXPORTER, dcgm.EXPORTER_SERVICE, "gpu-metrics", exporter))
    if Operand.NODE_STATUS_EXPORTER in spec.enabled and own.enabled:
        operand = Operand.NODE_STATUS_EXPORTER
        found.append(_monitor(wanted, operand, validator.SERVICE, "node-status", own))
    if own.enabled:
        found.append(_monitor(wanted, OPERATOR, OPERATOR_SERVICE, "metrics", own))
    return found


def _monitor(wanted: RenderInputs, operand: str, service: str, port: str, given: ServiceMonitor) -> Rendered:
    endpoint: Raw = {"port": port, "path": "/metrics", "interval": given.interval, "honorLabels": given.honor_labels}
    if given.scrape_timeout:
        endpoint["scrapeTimeout"] = given.scrape_timeout
    if given.relabelings:
        endpoint["relabelings"] = [_relabeling(each) for each in given.relabelings]
    spec = {
        "endpoints": [endpoint],
        "jobLabel": "app",
        "namespaceSelector": {"matchNames": [wanted.namespace]},
        "selector": {"matchLabels": {"app": service}},
    }
    metadata = {"name": service, "namespace": wanted.namespace}
    obj = {"apiVersion": _API, "kind": "ServiceMonitor", "metadata": metadata, "spec": spec}
    return owned(wanted, operand, obj, labels={"app": service, **given.additional_labels})


def _relabeling(given: Relabeling) -> Raw:
    texts = {"separator": given.separator, "regex": given.regex, "replacement": given.replacement}
    found = {**without_empty(given), **{name: text for name, text in texts.items() if text is not None}}
    return {name: each for name, each in found.items() if name != "modulus" or each}


def _rules(wanted: RenderInputs) -> list[Rendered]:
    own = wanted.policy.spec.operator.metrics
    if not own.prometheus_rules:
        return []
    alerts = [_alert(*each) for each in _ALERTS]
    metadata = {"name": OPERATOR_SERVICE, "namespace": wanted.namespace}
    spec = {"groups": [{"name": "purser-operator", "rules": alerts}]}
    obj = {"apiVersion": _API, "kind": "PrometheusRule", "metadata": metadata, "spec": spec}
    return [owned(wanted, OPERATOR, obj, labels=own.service_monitor.additional_labels)]


def _alert(name: str, expression: str, lasts: str, severity: str, summary: str) -> Raw:
    return {
        "alert": name,
        "expr": expression,
        "for": lasts,
        "labels": {"severity": severity},
        "annotations": {"summary": summary},
    }


def _leaders(gauge: Gauge) -> str:
    """What the leader says, whichever replica that is: an alert begins anew when the labels of its series change."""
    return f"max by (namespace, job) ({GAUGE_PREFIX}{gauge})"


# An upgrade may take days, and the stack is not ready for as long. One that goes on, or queued for upgrade, is no
# failure; one that failed somewhere has an alert of its own, and so has one that gets nowhere.
_UPGRADING = (
    f"({_leaders(Gauge.UPGRADES_IN_PROGRESS)} > 0 or ({_leaders(Gauge.UPGRADES_PENDING)} > 0"
    f" and {_leaders(Gauge.UPGRADES_FAILED)} == 0 and {_leaders(Gauge.AUTO_UPGRADE)} == 1))"
)

_ALERTS = (
    (
        "GPUOperatorReconciliationFailed",
        f"{_leaders(Gauge.RECONCILIATION)} < 0 or ({_leaders(Gauge.RECONCILIATION)} == 0 unless {_UPGRADING})",
        "1h",
        "warning",
        "The GPU stack has not been ready for an hour, and no driver upgrade is the reason; the ClusterPolicy's status"
        " names operand, node and reason.",
    ),
    (
        "PurserDriverUpgradeGetsNowhere",
        f"{_leaders(Gauge.UPGRADES_IN_PROGRESS)} > 0 and changes(({_leaders(Gauge.UPGRADES_DONE)})[15m:1m]) == 0",
        "6h",
        "warning",
        "For hours no node has come to the end of its driver upgrade; the ClusterPolicy's status says what it waits"
        " for.",
    ),
    (
        "GPUOperatorDriverAutoUpgradeFailures",
        f"{_leaders(Gauge.UPGRADES_FAILED)} > 0",
        "30m",
        "warning",
        "The driver upgrade failed on nodes: their annotation purser.dev/driver-upgrade-failure says why.",
    ),
    (
        "GPUOperatorNodeDeploymentDriverFailed",
        "gpu_operator_node_driver_ready == 0",
        "30m",
        "warning",
        "A node's driver is not ready.",
    ),
    (
        "GPUOperatorNodeDeploymentFailed",
        "gpu_operator_node_plugin_ready == 0",
        "30m",
        "warning",
        "A node's device plugin is not ready.",
    ),
    (
        "GPUOperatorNodeToolkitFailed",
        "gpu_operator_node_toolkit_ready == 0",
        "30m",
        "warning",
        "A node's container toolkit is not ready.",
    ),
    (
        "GPUOperatorNodeCudaFailed",
        "gpu_operator_node_cuda_ready == 0",
        "30m",
        "warning",
        "CUDA does not work on a node.",
    ),
)
"""Name, expression, for how long, severity, and what it means."""
