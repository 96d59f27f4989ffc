"""The chart's webhook configurations are those that the scheduler looks for."""

from typing import Any

import pytest
import yaml
from tests.scripts import script
from tests.tiers import some
from typer.testing import CliRunner

from purser.cli import app
from purser.scheduler.settings import ServiceTarget, WebhookSettings
from purser.scheduler.webhook.configurations import (
    EVICTIONS_WEBHOOK,
    NODES_WEBHOOK,
    REQUIRED_WEBHOOK,
    mutating_configuration,
    validating_configuration,
)
from purser.scheduler.webhook.node_policies import node_policies
from purser.scheduler.webhook.registration import differences

from .test_helm_chart import CHART, find, render

TARGET = ServiceTarget("purser-system", "purser-webhook")
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def wanted(failure_policy: str = "Ignore") -> list[dict[str, Any]]:
    settings = WebhookSettings(TARGET, failure_policy)
    return [mutating_configuration(settings, TARGET), validating_configuration(settings, TARGET)]


def test_the_charts_files_are_what_the_script_makes() -> None:
    for files in script("generate_chart").manifests().values():
        for path, made in files.items():
            assert yaml.load((CHART / path).read_text(), yaml.CSafeLoader) == made, "run scripts/generate_chart.py"


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
def test_the_scheduler_finds_nothing_wrong_with_what_the_chart_installs(policy: str) -> None:
    documents = render({"webhook": {"failurePolicy": policy}})
    for each in wanted(policy):
        found = find(documents, each["kind"], each["metadata"]["name"])
        assert list(differences(_by_name(found["webhooks"]), _by_name(each["webhooks"]))) == []
        assert not [webhook for webhook in found["webhooks"] if "caBundle" in webhook["clientConfig"]]


def test_without_the_webhook_there_is_no_configuration_and_no_right_to_one() -> None:
    documents = render({"webhook": {"enabled": False}})
    assert not [each for each in documents if each["kind"] in KINDS]
    rules = find(documents, "ClusterRole", "purser-scheduler")["rules"]
    assert not [rule for rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]


def test_the_scheduler_may_create_no_webhook_configuration_and_patch_two() -> None:
    rules = find(render({}), "ClusterRole", "purser-scheduler")["rules"]
    [rule] = [rule for rule in rules if "admissionregistration.k8s.io" in rule["apiGroups"]]
    assert rule["resourceNames"] == [each["metadata"]["name"] for each in wanted()]
    assert rule["verbs"] == ["get", "patch"]


def test_without_the_chart_a_command_prints_the_same() -> None:
    result = CliRunner().invoke(app, ["webhook", "manifest", "--webhook-failure-policy=Fail"])
    assert list(yaml.safe_load_all(result.stdout)) == wanted("Fail")
    by_url = CliRunner().invoke(app, ["webhook", "manifest", "--webhook-url=[::1]:8443"])
    urls = [each["clientConfig"]["url"] for d in yaml.safe_load_all(by_url.stdout) for each in d["webhooks"]]
    assert urls == [f"https://[::1]:8443/{path}" for path in ("mutate", *["validate"] * 4, "warn")]
    assert CliRunner().invoke(app, ["webhook", "manifest", "--webhook-failure-policy=Never"]).exit_code == 2


@pytest.mark.parametrize(
    ("kubernetes", "policies", "conditions"),
    some(
        [
            ("1.20", 0, None),
            ("1.22", 0, 0),
            ("1.27", 0, 0),
            ("1.28", 0, 1),
            ("1.29", 0, 1),
            ("1.30", 4, None),
            ("1.36", 4, None),
        ],
        every=3,
    ),
)
def test_what_accounts_on_nodes_write_is_asked_about_once_whatever_the_version(
    kubernetes: str, policies: int, conditions: int | None
) -> None:
    for values in ({}, {"operator": {"enabled": True}}):
        documents = render(values, kubernetes)
        found = [each for each in documents if each["kind"].startswith("ValidatingAdmissionPolicy")]
        assert len(found) == policies
        assert [each["spec"] for each in found] == [each["spec"] for each in node_policies("purser-system")[:policies]]
        webhooks = find(documents, "ValidatingWebhookConfiguration", "purser-validating")["webhooks"]
        asked = [len(each.get("matchConditions", ())) for each in webhooks if each["name"] == NODES_WEBHOOK]
        assert asked == ([] if conditions is None else [conditions])
        evictions = [each for each in webhooks if each["name"] == EVICTIONS_WEBHOOK]
        can_ask_about_them_alone = int(kubernetes.partition(".")[2]) >= 28
        assert [(each["failurePolicy"], len(each["matchConditions"])) for each in evictions] == (
            [("Fail", 1)] if can_ask_about_them_alone else []
        )
        assert list(differences(_by_name(webhooks), _by_name(wanted()[1]["webhooks"]))) == []


@pytest.mark.parametrize(("kubernetes", "is_there"), [("1.27", False), ("1.28", True), ("1.36", True)])
def test_pods_that_cannot_wait_on_their_node_need_an_answer_where_the_api_server_knows_them(
    kubernetes: str, is_there: bool
) -> None:
    webhooks = find(render({}, kubernetes), "MutatingWebhookConfiguration", "purser-mutating")["webhooks"]
    found = [(each["failurePolicy"], len(each["matchConditions"])) for each in webhooks[1:]]
    assert [each["name"] for each in webhooks[1:]] == [REQUIRED_WEBHOOK] * is_there
    assert found == [("Fail", 2)] * is_there
    assert list(differences(_by_name(webhooks), _by_name(wanted()[0]["webhooks"]))) == []


def test_where_every_kubelet_would_wait_for_it_the_question_can_be_left_out_and_is_short() -> None:
    [webhook] = [each for each in _validating("1.27", {}) if each["name"] == NODES_WEBHOOK]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
    off = _validating("1.27", {"webhook": {"nodes": False}})
    assert NODES_WEBHOOK not in {each["name"] for each in off}


def _validating(kubernetes: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    found = find(render(values, kubernetes), "ValidatingWebhookConfiguration", "purser-validating")["webhooks"]
    return list(found)


def _by_name(webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["name"]: each for each in webhooks}
