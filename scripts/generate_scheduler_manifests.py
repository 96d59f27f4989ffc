"""Writes what the API server is to ask Purser's webhook, and its own policies, into the Helm chart.

    python scripts/generate_scheduler_manifests.py [CHART]

CHART is the chart's folder, by default this repository's. Where its values have a say the files hold Helm's templates.
"""

import sys
from pathlib import Path
from typing import Any

from purser.scheduler.node_policies import match_conditions, node_policies
from purser.scheduler.settings import ServiceTarget, WebhookSettings
from purser.scheduler.webhook_configurations import mutating_configuration, nodes_webhook, validating_configuration
from purser.yaml_text import yaml_text

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "purser"
HEADER = "# Made by scripts/generate_scheduler_manifests.py from purser.scheduler: change it there.\n"
NAMESPACE = "{{ .Release.Namespace }}"
TARGET = ServiceTarget(NAMESPACE, "purser-webhook")
SETTINGS = WebhookSettings(TARGET, "{{ .Values.webhook.failurePolicy }}")


def main(chart: Path) -> None:
    for path, value in manifests().items():
        (chart / path).parent.mkdir(parents=True, exist_ok=True)
        (chart / path).write_text(HEADER + yaml_text(value, width=160))


def manifests() -> dict[str, Any]:
    """By path in the chart."""
    return {
        "files/webhooks-mutating.yaml": mutating_configuration(SETTINGS, TARGET)["webhooks"],
        "files/webhooks-validating.yaml": validating_configuration(SETTINGS, TARGET)["webhooks"],
        "files/webhook-nodes.yaml": [nodes_webhook(SETTINGS, TARGET)],
        "files/webhook-nodes-matched.yaml": [nodes_webhook(SETTINGS, TARGET, match_conditions(NAMESPACE))],
        "files/node-policies.yaml": node_policies(NAMESPACE),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else CHART)
