"""kube-scheduler hears the same of Purser in the lab as from the Helm chart."""

from pathlib import Path

import helm_python
import yaml

from purser.core.vendors.catalogue import FAMILY_NAMES
from purser.lab import profile

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "purser"


def test_the_configuration_is_the_chart_s_but_for_the_lease():
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render({"vendors": list(FAMILY_NAMES)}, name="purser", namespace="purser-system")
    [text] = [text for name, text in files.items() if name.endswith("configmap-kube-scheduler.yaml")]
    charts = yaml.safe_load(yaml.safe_load(text)["data"]["config.yaml"])
    labs = profile.configuration(8444)
    assert ordered(labs) == ordered({key: charts[key] for key in labs})
    assert set(charts) - set(labs) == {"apiVersion", "kind", "leaderElection"}


def ordered(config):
    for extender in config["extenders"]:
        extender["managedResources"].sort(key=lambda resource: resource["name"])
    return config
