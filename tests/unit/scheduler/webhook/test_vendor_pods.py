"""Pods for other vendors' devices at the webhooks."""

import pytest
from tests.unit.scheduler.reviews import ask, container, patched, pod

from purser.core.fleet import node_state
from purser.core.model import Device, NodeInventory
from purser.core.placement.offers import offers_of
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation, UnknownFleet
from purser.scheduler.webhook.validation import Validation

DCU, DCU_MEM = "hygon.com/dcunum", "hygon.com/dcumem"
BI, BI_CORES = "iluvatar.ai/BI-V150-vgpu", "iluvatar.ai/BI-V150.vCore"


class Nodes(UnknownFleet):
    """A node that has registered devices of some families."""

    def __init__(self, *resources):
        self._resources = resources

    def gpus(self):
        devices = tuple(Device(f"d{n}", n, "x", 1000, resource=each) for n, each in enumerate(self._resources))
        return offers_of([node_state(NodeInventory("n1", devices), {})])

    def offers(self, resource):
        return resource in self._resources


NAMED = DeviceRules(families=["Hygon DCU", "Iluvatar BI-V150"])


def mutated(obj, *resources, devices=NAMED):
    return ask(Mutation(fleet=Nodes(*resources), devices=devices), obj)


def test_a_pod_for_devices_of_a_family_that_is_named_is_pursers():
    obj = pod(container(limits={DCU: "1", DCU_MEM: "1000"}))
    answer = mutated(obj, DCU)
    after = patched(obj, answer)
    assert after["spec"]["schedulerName"] == "purser-scheduler"
    assert after["spec"]["containers"] == obj["spec"]["containers"]
    assert not answer.get("warnings")
    assert ask(Validation(devices=NAMED), after)["allowed"]
    assert "lacks schedulerName" in ask(Validation(devices=NAMED), obj)["status"]["message"]


@pytest.mark.parametrize("fields", [{}, {"requests": {"huawei.com/Ascend910C": "1"}}], ids=["limits", "requests too"])
def test_one_npu_of_a_module_is_both(fields):
    """kubelet and API server want the number in limits and requests alike."""
    npu, named = "huawei.com/Ascend910C", DeviceRules(families=["Ascend 910C"])
    obj = pod(container(limits={npu: "1", f"{npu}-memory": "16384"}))
    obj["spec"]["containers"][0]["resources"] |= fields
    after = patched(obj, mutated(obj, npu, devices=named))
    resources = after["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {npu: "2", f"{npu}-memory": "16384"}
    assert resources.get("requests", {}) == ({npu: "2"} if fields else {})
    assert ask(Validation(devices=named), after)["allowed"]
    left = after | {"spec": after["spec"] | {"containers": obj["spec"]["containers"]}}
    assert f"lacks {npu}" in ask(Validation(devices=named), left)["status"]["message"]


def test_a_pod_for_devices_of_a_family_that_is_not_named_is_left_alone():
    """Whatever a node registers, and whatever the pod says."""
    obj = pod(container(limits={DCU: "1", DCU_MEM: "16Gi"}), annotations={"hami.io/dcu-devices-allocated": "x"})
    others = DeviceRules(families=["Iluvatar BI-V150"])
    answer = mutated(obj, DCU, devices=others)
    assert answer["allowed"] and "patch" not in answer
    assert "warnings" not in answer
    assert ask(Validation(devices=others), obj)["allowed"]


@pytest.mark.parametrize(
    ("families", "hint"),
    [(["Hygon DCU"], "has registered its devices"), (["AMD"], "Hygon DCU in its chart value vendors")],
)
def test_a_pod_for_devices_that_no_node_has_says_so(families, hint):
    answer = mutated(pod(container(limits={DCU: "1"})), BI, devices=DeviceRules(families=families))
    assert hint in answer["warnings"][0]


def test_limits_and_variables_that_the_plugin_needs_are_added():
    obj = pod(container(limits={BI: "2"}, env=[{"name": "A", "value": "b"}]), container("other"))
    after = patched(obj, mutated(obj, BI))
    first, second = after["spec"]["containers"]
    assert first["resources"]["limits"] == {BI: "2", BI_CORES: "200"}
    assert first["env"] == [{"name": "A", "value": "b"}, {"name": "SOL_CONTINER_NAME", "value": "train"}]
    assert "env" not in second
    assert patched(after, mutated(after, BI)) == after


RECORD = {"hami.io/dcu-devices-to-allocate": "DCU-a,DCU,1000,10:;", "hami.io/bind-phase": "allocating"}
PLUGIN, BOB = {"user": "system:serviceaccount:kube-system:hami-dcu"}, {"user": "bob"}
NODE = {"user": "system:node:n1", "groups": ["system:nodes"]}


def changed(before, after, user, devices=NAMED, limits=None, labels=None, **fields):
    ours = {"schedulerName": "purser-scheduler", **fields}
    asks = container(limits=limits or {DCU: "1"})
    old, new = (labelled(pod(asks, annotations=each, **ours), labels) for each in (before, after))
    webhook = Validation(devices=devices, vendor_accounts=[PLUGIN["user"]])
    return ask(webhook, new, operation="UPDATE", old=old, **user)


def labelled(obj, labels):
    obj["metadata"]["labels"] = labels or {}
    return obj


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RECORD, {**RECORD, "hami.io/dcu-devices-to-allocate": "DCU-b,DCU,1000,10:;"}),
        (RECORD, {}),
        ({}, RECORD),
    ],
    ids=["another device", "none", "before the Binding"],
)
@pytest.mark.parametrize(
    ("pod_is", "user", "admitted"),
    [
        ({}, BOB, False),
        ({"schedulerName": "default-scheduler"}, BOB, False),
        ({"labels": {"purser.dev/webhook": "ignore"}}, BOB, False),
        ({"limits": {DCU: "1", "nvidia.com/gpu": "1"}}, BOB, False),
        ({}, {"user": "system:node:n1"}, False),
        ({}, PLUGIN, True),
        ({}, NODE, True),
        ({"limits": {"nvidia.com/gpu": "1"}}, BOB, True),
        ({"devices": DeviceRules(families=["AMD"])}, BOB, True),
    ],
)
def test_only_nodes_and_named_accounts_change_what_the_plugin_is_told(before, after, pod_is, user, admitted):
    answer = changed(before, after, user, **pod_is)
    assert answer["allowed"] is admitted
    assert admitted or "vendorAccounts" in answer["status"]["message"]


def test_a_user_changes_what_is_not_the_plugins():
    assert changed(RECORD, {**RECORD, "mine": "x"}, BOB)["allowed"]


def test_no_new_pod_brings_a_record_whoever_is_to_place_it():
    for labels, scheduler in (({}, "volcano"), ({"purser.dev/webhook": "ignore"}, "default-scheduler")):
        obj = labelled(pod(container(limits={DCU: "1"}), annotations=RECORD, schedulerName=scheduler), labels)
        answer = ask(Validation(devices=NAMED), obj)
        assert "may write annotations hami.io/" in answer["status"]["message"]
        assert ask(Validation(), obj)["allowed"]


def test_only_the_scheduler_binds_with_a_record():
    binding = {"metadata": {"name": "p", "annotations": RECORD}, "target": {"name": "n1"}}
    webhook = Validation(scheduler_user=lambda: "purser", devices=NAMED)
    for user, admitted in (("purser", True), ("bob", False)):
        assert ask(webhook, binding, subresource="binding", user=user)["allowed"] is admitted


@pytest.mark.parametrize(
    ("obj", "sentence"),
    [
        (pod(container(limits={DCU_MEM: "1000"})), "for hygon.com/dcumem but not for hygon.com/dcunum"),
        (
            pod(container(limits={DCU: "1"}), annotations={"hami.io/dcu-devices-allocated": "x"}),
            "only Purser's scheduler",
        ),
        (pod(container(limits={DCU: "1"}), nodeName="n1"), "skips the scheduler"),
        (
            pod(container(limits={DCU: "1", DCU_MEM: "1", "hygon.com/dcucores": "1"}, privileged=True)),
            "whole GPUs (hygon.com/dcunum alone)",
        ),
    ],
)
def test_what_could_never_run_is_refused(obj, sentence):
    answer = mutated(obj, DCU)
    assert not answer["allowed"]
    assert sentence in answer["status"]["message"]
