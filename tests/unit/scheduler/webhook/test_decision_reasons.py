"""The reason of each decision, as metrics and logs count it. What is written of nodes: `tests/security`."""

import json

import pytest
from tests.unit.scheduler.reviews import container, pod, review

from purser.core.names import ENFORCEMENT_ANNOTATION
from purser.scheduler.webhook import Mutation
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.review import DecisionReason, decode_review
from purser.scheduler.webhook.validation import Validation

WHOLE = {"nvidia.com/gpu": 1}
SHARE = {**WHOLE, "nvidia.com/gpumem": 100}
KUBELET = {"user": "system:node:n1", "groups": ["system:nodes"]}
DCU = {"hygon.com/dcunum": "1", "hygon.com/dcumem": "1000"}
FAMILIES = DeviceRules(families=["Hygon DCU"])
GRANT = {"purser.dev/grant": "{}"}


def gpu_pod(limits=WHOLE, *, labels=None, annotations=None, env=None, privileged=None, **spec):
    fields = {"env": [{"name": name, "value": value} for name, value in env.items()]} if env else {}
    asked = container(limits=limits, privileged=privileged, **fields)
    made = pod(asked, annotations=annotations, **{"schedulerName": "purser-scheduler", **spec})
    made["metadata"]["labels"] = labels or {}
    return made


def _change(limits, annotations):
    return gpu_pod(limits, annotations=annotations), {"old": gpu_pod(limits), "operation": "UPDATE"}


NEW = {
    DecisionReason.NOT_A_POD: (gpu_pod(), {"resource": "services"}),
    DecisionReason.MIRROR_POD: (gpu_pod(annotations={"kubernetes.io/config.mirror": "x"}), KUBELET),
    DecisionReason.OTHER_SCHEDULER: (gpu_pod(schedulerName="volcano"), {}),
    DecisionReason.PRIVILEGED_SHARE: (gpu_pod(SHARE, privileged=True), {}),
    DecisionReason.NODE_PRESET: (gpu_pod(nodeName="n1"), {}),
    DecisionReason.FORGED_RECORD: (gpu_pod(annotations={"hami.io/vgpu-node": "n1"}), {}),
    DecisionReason.DEVICES_UNASKED: (gpu_pod({}, env={"NVIDIA_VISIBLE_DEVICES": "all"}), {}),
    DecisionReason.WIDENED_SHARE: (gpu_pod(SHARE, hostPID=True), {}),
    DecisionReason.UNENFORCED: (
        gpu_pod(SHARE, env={"CUDA_DISABLE_CONTROL": "true"}, annotations={ENFORCEMENT_ANNOTATION: "required"}),
        {},
    ),
}
VALIDATED = {
    DecisionReason.WEBHOOK_IGNORED: (gpu_pod(labels={"purser.dev/webhook": "ignore"}), {}),
    DecisionReason.CHANGED_GRANT: _change(WHOLE, GRANT),
    DecisionReason.CHANGED_RECORD: _change(DCU, {"hami.io/dcu-devices-allocated": "x"}),
}


def decided(webhook, obj, fields):
    return webhook.review(decode_review(json.dumps(review(obj, **fields)).encode()))


@pytest.mark.parametrize(
    "webhook", [Mutation(devices=FAMILIES), Validation(devices=FAMILIES)], ids=["new", "validated"]
)
@pytest.mark.parametrize("reason", NEW)
def test_both_webhooks_give_the_reason(webhook, reason):
    found = decided(webhook, *NEW[reason])
    assert (found.why, found.allowed) == (reason, not reason.denies)


@pytest.mark.parametrize("reason", VALIDATED)
def test_the_validating_webhook_gives_the_reason(reason):
    found = decided(Validation(devices=FAMILIES), *VALIDATED[reason])
    assert (found.why, found.allowed) == (reason, not reason.denies)
