"""What is said of Deployments, Jobs and the like whose pods would be refused or left alone."""

import pytest
from tests.unit.scheduler.reviews import ask, container, pod

from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import ReviewError
from purser.scheduler.webhook.workload_warnings import WORKLOADS, WorkloadWarnings

GPU, MEM = "nvidia.com/gpu", "nvidia.com/gpumem"


def warned(kind, obj, **fields):
    return ask(WorkloadWarnings(Mutation()), obj, resource=kind, **fields)


def workload(kind, *containers, **spec):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod(*containers, **spec)["spec"]}
    inner = {"template": template}
    return {
        "kind": kind,
        "metadata": {"name": "w"},
        "spec": {"jobTemplate": {"spec": inner}} if kind == "CronJob" else inner,
    }


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"])
def test_what_its_pods_would_be_refused_for_is_a_warning(kind):
    answer = warned(kind.lower() + "s", workload(kind, container(limits={GPU: 1, MEM: "16Gi"})))
    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert f"pods of this {kind} will be denied" in warning
    assert MEM in warning


def test_another_scheduler_is_a_warning():
    answer = warned("deployments", workload("Deployment", container(limits={GPU: 1}), schedulerName="volcano"))
    assert 'its schedulerName is "volcano"' in answer["warnings"][0]


def test_what_asks_for_nothing_or_all_right_has_no_warning():
    for limits in (None, {"cpu": 1}):
        assert warned("jobs", workload("Job", container(limits=limits))) == {"uid": "r-1", "allowed": True}
    assert "denied" not in str(warned("jobs", workload("Job", container(limits={GPU: 1}))))


@pytest.mark.parametrize("spec", [{}, {"template": {}}, {"template": {"spec": {}}}, None])
def test_half_an_object_is_let_through(spec):
    assert warned("deployments", None if spec is None else {"spec": spec})["allowed"]


@pytest.mark.parametrize("obj", [{"spec": []}, {"spec": {"template": {"spec": {"containers": 1}}}}])
def test_nonsense_is_a_bad_request(obj):
    with pytest.raises(ReviewError):
        warned("deployments", obj)


def test_the_webhooks_rules_cover_each_of_them_with_short_timeouts():
    from purser.scheduler.settings import UrlTarget, WebhookSettings
    from purser.scheduler.webhook.configurations import validating_configuration

    webhooks = validating_configuration(WebhookSettings(), UrlTarget("127.0.0.1", 1))["webhooks"]
    (found,) = [each for each in webhooks if each["clientConfig"]["url"].endswith("/warn")]
    assert {rule["apiGroups"][0]: tuple(rule["resources"]) for rule in found["rules"]} == WORKLOADS
    assert (found["failurePolicy"], found["timeoutSeconds"]) == ("Ignore", 2)
