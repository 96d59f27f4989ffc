"""Writes the operator's CustomResourceDefinition and its rules into the Helm chart.

    python scripts/generate_operator_manifests.py [CHART]

CHART is the chart's folder, by default this repository's. Both come from the types and tables of purser.operator.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from purser.operator import rbac
from purser.operator.definition import crd

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "purser"
HEADER = "# Made by scripts/generate_operator_manifests.py from purser.operator: change it there.\n"


def main(chart: Path) -> None:
    for path, value in manifests().items():
        (chart / path).parent.mkdir(parents=True, exist_ok=True)
        (chart / path).write_text(HEADER + yaml.dump(value, Dumper=_Plain, sort_keys=False, width=160))


def manifests() -> dict[str, Any]:
    """By path in the chart."""
    return {
        "crds/clusterpolicies.purser.dev.yaml": crd.definition(),
        "files/operator-cluster-rules.yaml": rbac.cluster_rules(),
        "files/operator-namespace-rules.yaml": rbac.namespace_rules(),
    }


class _Plain(yaml.SafeDumper):
    """Without anchors: a value that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else CHART)
