import pytest
from tests.unit.scheduler.reviews import ask, container, pod

from purser.core.names import WEBHOOK_PROBE_ANNOTATION
from purser.scheduler.settings import UrlTarget, WebhookSettings
from purser.scheduler.webhook.configurations import validating_configuration
from purser.scheduler.webhook.validation import PROBE_ANSWER, Validation

from .test_mutation import GPU, MEM, refusal

GRANT = {"purser.dev/grant": '{"a":1}', "purser.dev/grant-signature": "abc"}
SCHEDULER = "system:serviceaccount:purser-system:purser-scheduler"


@pytest.mark.parametrize("scheduler", [None, "default-scheduler"])
def test_a_gpu_pod_that_nobody_mutated_is_refused(scheduler):
    obj = pod(container(limits={GPU: 1}), **({"schedulerName": scheduler} if scheduler else {}))
    assert 'lacks schedulerName "purser-scheduler"' in refusal(ask(Validation(), obj))


def test_a_pod_that_lost_its_limit_is_refused():
    obj = pod(container(limits={MEM: 100}), schedulerName="purser-scheduler")
    assert 'lacks nvidia.com/gpu in the limits of "train"' in refusal(ask(Validation(), obj))


def test_pods_without_gpus_and_pods_of_other_schedulers_pass():
    assert ask(Validation(), pod(container()))["allowed"]
    assert ask(Validation(), pod(container(limits={MEM: "16Gi"}), schedulerName="volcano"))["allowed"]


def update(before, after):
    old, new = pod(container(limits={GPU: 1}), annotations=before), pod(container(limits={GPU: 1}), annotations=after)
    return ask(Validation(), new, old=old, operation="UPDATE")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, GRANT),
        (GRANT, {}),
        (GRANT, {**GRANT, "purser.dev/grant": '{"a":2}'}),
        (GRANT, {**GRANT, "purser.dev/grant-signature": "abd"}),
        ({"purser.dev/grant": ""}, {}),
    ],
    ids=str,
)
def test_a_grant_never_changes(before, after):
    assert "must not be changed" in refusal(update(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {}), (GRANT, GRANT), (GRANT, {**GRANT, "note": "x"}), ({"note": "x"}, {"hami.io/vgpu-node": "n"})],
    ids=str,
)
def test_other_changes_are_free(before, after):
    assert update(before, after)["allowed"]


@pytest.mark.parametrize("label", ["purser.dev/webhook", "hami.io/webhook"])
def test_a_pod_with_a_grant_cannot_be_taken_from_the_webhooks_sight(label):
    def labelled(annotations, before, after):
        old, new = (pod(container(limits={GPU: 1}), annotations=annotations) for _ in range(2))
        old["metadata"]["labels"], new["metadata"]["labels"] = before, after
        return ask(Validation(), new, old=old, operation="UPDATE")

    assert f"label {label} cannot be set to ignore" in refusal(labelled(GRANT, {}, {label: "ignore"}))
    assert labelled(GRANT, {}, {label: "mind"})["allowed"]
    assert labelled(GRANT, {label: "ignore"}, {label: "ignore"})["allowed"]
    assert labelled({}, {}, {label: "ignore"})["allowed"]


def binding(annotations):
    return {"kind": "Binding", "metadata": {"name": "p", "annotations": annotations}, "target": {"name": "n1"}}


def bind(annotations, user, known=SCHEDULER):
    return ask(Validation(scheduler_user=lambda: known), binding(annotations), subresource="binding", user=user)


def test_only_the_scheduler_brings_grants():
    assert bind(GRANT, SCHEDULER)["allowed"]
    assert f'may only be set by "{SCHEDULER}", not by "mallory"' in refusal(bind(GRANT, "mallory"))


def test_a_probe_is_denied_whoever_sends_it():
    for user in (SCHEDULER, "mallory"):
        assert PROBE_ANSWER in refusal(bind({WEBHOOK_PROBE_ANNOTATION: "true"}, user))


def test_the_older_place_for_bindings_is_no_way_around():
    answer = ask(Validation(scheduler_user=lambda: SCHEDULER), binding(GRANT), resource="bindings", user="mallory")
    assert 'not by "mallory"' in refusal(answer)


def test_labels_of_a_binding_keep_no_webhook_away():
    target = UrlTarget("::1", 8443)
    configuration = validating_configuration(WebhookSettings(target), target)
    [found] = [each for each in configuration["webhooks"] if "bindings" in each["rules"][0]["resources"]]
    assert found["rules"][0]["resources"] == ["pods/binding", "bindings"]
    assert found["objectSelector"] == {}


def test_anybody_else_binds_pods_without_grants():
    assert bind({}, "system:kube-scheduler")["allowed"]
    assert bind(None, "system:kube-scheduler")["allowed"]


def test_while_the_scheduler_does_not_know_itself_the_signature_alone_decides():
    assert bind(GRANT, "mallory", known="")["allowed"]


def test_how_near_network_devices_are_to_be_is_preferred_or_required():
    limits = {GPU: 1, "mellanox.com/vf": 1}
    obj = pod(container(limits=limits), annotations={"purser.dev/gpu-nic": "always"}, schedulerName="purser-scheduler")
    assert "preferred or required" in refusal(ask(Validation(), obj))
    obj["metadata"]["annotations"] = {"purser.dev/gpu-nic": "required"}
    assert ask(Validation(), obj)["allowed"]
