"""Pods for other vendors' devices at the webhooks."""

import json

import pytest
from tests.unit.scheduler.reviews import container, patched, pod, review

from purser.core.fleet import node_state
from purser.core.model import Device, NodeInventory
from purser.core.placement.offers import offers_of
from purser.scheduler.webhook.mutation import Mutation, UnknownFleet
from purser.scheduler.webhook.review import decode_review, encode_review
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


def ask(webhook, obj, **fields):
    request = decode_review(json.dumps(review(obj, **fields)).encode())
    return json.loads(encode_review(request, webhook.review(request)))["response"]


def mutated(obj, *resources):
    return ask(Mutation(fleet=Nodes(*resources)), obj)


def test_a_pod_for_registered_devices_is_pursers():
    obj = pod(container(limits={DCU: "1", DCU_MEM: "1000"}))
    answer = mutated(obj, DCU)
    after = patched(obj, answer)
    assert after["spec"]["schedulerName"] == "purser-scheduler"
    assert after["spec"]["containers"] == obj["spec"]["containers"]
    assert not answer.get("warnings")
    assert ask(Validation(), after)["allowed"]


def test_a_pod_for_devices_that_no_node_has_registered_is_left_alone():
    obj = pod(container(limits={DCU: "1"}))
    answer = mutated(obj, BI)
    assert answer["allowed"] and "patch" not in answer
    assert "has registered such devices" in answer["warnings"][0]
    assert ask(Validation(), obj)["allowed"]


def test_limits_and_variables_that_the_plugin_needs_are_added():
    obj = pod(container(limits={BI: "2"}, env=[{"name": "A", "value": "b"}]), container("other"))
    after = patched(obj, mutated(obj, BI))
    first, second = after["spec"]["containers"]
    assert first["resources"]["limits"] == {BI: "2", BI_CORES: "200"}
    assert first["env"] == [{"name": "A", "value": "b"}, {"name": "SOL_CONTINER_NAME", "value": "train"}]
    assert "env" not in second
    assert patched(after, mutated(after, BI)) == after


@pytest.mark.parametrize(
    ("obj", "sentence"),
    [
        (pod(container(limits={DCU_MEM: "1000"})), "for no hygon.com/dcunum"),
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
