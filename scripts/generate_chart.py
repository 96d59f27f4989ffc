"""Writes into the Helm chart what follows from types and tables of Purser's.

    python scripts/generate_chart.py [CHART]

CHART is the folder of the chart, by default this repository's. Written are the operator's definition and rules, what
the API server is to ask the webhook, and its own policies. Where the chart's values have a say, files hold Helm's
templates.
"""

import sys
from pathlib import Path
from typing import Any

from purser.core.dialects.managed import ignored_resources, managed_resources
from purser.operator.manifests import rbac
from purser.operator.policy import crd
from purser.scheduler.settings import ServiceTarget, WebhookSettings
from purser.scheduler.webhook.configurations import (
    evictions_webhook,
    mutating_configuration,
    nodes_webhook,
    required_webhook,
    validating_configuration,
)
from purser.scheduler.webhook.node_policies import match_conditions, node_policies, writer_conditions
from purser.yaml_text import yaml_text

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "purser"
HEADER = "# Made by scripts/generate_chart.py from {}: change it there.\n"
NAMESPACE = "{{ .Release.Namespace }}"
TARGET = ServiceTarget(NAMESPACE, "purser-webhook")
SETTINGS = WebhookSettings(TARGET, "{{ .Values.webhook.failurePolicy }}")


def main(chart: Path) -> None:
    for package, files in manifests().items():
        for path, value in files.items():
            (chart / path).parent.mkdir(parents=True, exist_ok=True)
            (chart / path).write_text(HEADER.format(package) + yaml_text(value, width=160))


def manifests() -> dict[str, dict[str, Any]]:
    """By the package that they are made from, and by path in the chart."""
    return {
        "purser.operator": {
            "crds/clusterpolicies.purser.dev.yaml": crd.definition(),
            "files/operator-cluster-rules.yaml": rbac.cluster_rules(),
            "files/operator-namespace-rules.yaml": rbac.namespace_rules(),
        },
        "purser.scheduler": {
            "files/webhooks-mutating.yaml": mutating_configuration(SETTINGS, TARGET)["webhooks"],
            "files/webhooks-validating.yaml": validating_configuration(SETTINGS, TARGET)["webhooks"],
            "files/webhook-nodes.yaml": [nodes_webhook(SETTINGS, TARGET)],
            "files/webhook-nodes-matched.yaml": [nodes_webhook(SETTINGS, TARGET, writer_conditions(NAMESPACE))],
            "files/webhook-evictions.yaml": [evictions_webhook(SETTINGS, TARGET, match_conditions(NAMESPACE))],
            "files/webhook-required.yaml": [required_webhook(SETTINGS, TARGET)],
            "files/node-policies.yaml": node_policies(
                NAMESPACE,
                '{{ include "purser.agentsTaint" . }}',
                '{{ include "purser.agentsCordon" . }}',
                '{{ include "purser.agentsLabel" . }}',
            ),
        },
        "purser.core.dialects": {
            "files/managed-resources.yaml": [{"name": resource} for resource in managed_resources()],
            "files/vendor-resources.yaml": {name: list(found) for name, found in ignored_resources().items()},
        },
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else CHART)
