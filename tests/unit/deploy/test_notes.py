"""What Helm prints after an installation is so."""

from typing import Any

import helm_python
import pytest

from .test_helm_chart import CHART

OPERATOR = {"operator": {"enabled": True}}


def notes(values: dict[str, Any]) -> str:
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="purser", namespace="purser-system")
    [text] = [text for name, text in files.items() if name.endswith("NOTES.txt")]
    return str(text)


def test_without_the_operator_the_agent_is_waited_for() -> None:
    assert "rollout status daemonset/purser-agent" in notes({})


def test_with_the_operator_its_policy_is_waited_for() -> None:
    text = notes({**OPERATOR, "clusterPolicy": {"name": "gpus"}})
    assert "kubectl wait clusterpolicies.purser.dev/gpus --for=condition=Ready" in text
    assert "purser-agent" not in text


def test_a_policy_that_the_chart_does_not_make_is_asked_for_and_not_waited_for() -> None:
    text = notes({**OPERATOR, "clusterPolicy": {"create": False}})
    assert "does nothing until there is a ClusterPolicy" in text
    assert "kubectl wait" not in text


@pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])
def test_pods_are_placed_where_the_webhook_is_on(enabled: bool) -> None:
    text = notes({"webhook": {"enabled": enabled}})
    assert ("Purser places pods" in text) == enabled
    assert ("The webhook is off" in text) != enabled


def test_an_image_without_a_registry_is_reported_and_what_to_do_keeps_the_other_values() -> None:
    upgrade = "helm upgrade purser deploy/helm/purser --namespace purser-system --reset-then-reuse-values "
    upgrade += "--set image.repository="
    assert upgrade in notes({})
    assert "helm upgrade" not in notes({"image": {"repository": "registry.example/purser"}})


def test_the_webhook_is_switched_on_as_the_message_says() -> None:
    text = notes({"webhook": {"enabled": False}, "image": {"repository": "registry.example/purser"}})
    assert "--reset-then-reuse-values --set webhook.enabled=true" in text


def test_a_family_without_an_account_of_its_plugin_is_reported() -> None:
    named = {"vendors": ["Hygon DCU"]}
    assert "device plugins of Hygon DCU" in notes(named)
    assert "vendorAccounts" not in notes({**named, "vendorAccounts": ["system:serviceaccount:kube-system:hami-dcu"]})
