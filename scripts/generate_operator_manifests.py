"""Writes the operator's CustomResourceDefinition and its rules into the Helm chart.

    python scripts/generate_operator_manifests.py [CHART]

CHART is the chart's folder, by default this repository's. Both come from the types and tables of purser.operator.
"""

import sys
from pathlib import Path
from typing import Any

from purser.operator import rbac
from purser.operator.definition import crd
from purser.yaml_text import yaml_text

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "purser"
HEADER = "# Made by scripts/generate_operator_manifests.py from purser.operator: change it there.\n"


def main(chart: Path) -> None:
    for path, value in manifests().items():
        (chart / path).parent.mkdir(parents=True, exist_ok=True)
        (chart / path).write_text(HEADER + yaml_text(value, width=160))


def manifests() -> dict[str, Any]:
    """By path in the chart."""
    return {
        "crds/clusterpolicies.purser.dev.yaml": crd.definition(),
        "files/operator-cluster-rules.yaml": rbac.cluster_rules(),
        "files/operator-namespace-rules.yaml": rbac.namespace_rules(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else CHART)
