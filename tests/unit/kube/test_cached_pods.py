"""What a cache of all pods keeps of what was said of them."""

import msgspec
import pytest

from purser.kube.codec import codec_of
from purser.kube.objects import PodStatus
from purser.kube.pod_details import CACHED_PODS, MAX_SCHEDULER_MESSAGE, SCHEDULED_PODS, scheduler_message
from purser.kube.resources import PODS

READY = {"type": "Ready", "status": "False", "message": "containers with unready status: [c]"}


def read(*conditions, resource=CACHED_PODS):
    body = {"metadata": {"name": "p", "namespace": "ns"}, "status": {"phase": "Pending", "conditions": conditions}}
    return codec_of(resource).object(msgspec.json.encode(body))


def scheduled(status, message=""):
    return {"type": "PodScheduled", "status": status, "reason": "x", "message": message}


def test_of_a_pod_that_waits_the_last_message_is_kept():
    pod = read(READY, scheduled("False", "0/3 nodes are\navailable: x\x1b"))
    assert scheduler_message(pod) == "0/3 nodes are available: x\N{REPLACEMENT CHARACTER}"
    assert len(pod.status.conditions) == 1
    assert scheduler_message(read(READY, scheduled("False", "plain"), resource=SCHEDULED_PODS)) == "plain"


@pytest.mark.parametrize("conditions", [(), (READY,), (READY, scheduled("True", "old"))], ids=["new", "odd", "bound"])
def test_of_other_pods_no_condition_is_kept(conditions):
    pod = read(*conditions)
    assert (pod.status.conditions, scheduler_message(pod)) == ((), "")


def test_pods_that_wait_for_the_same_share_the_message():
    first, second = (read(scheduled("False", "0/3 nodes are available: x" + " y" * 9)) for _ in range(2))
    assert first.status.conditions is second.status.conditions


def test_a_message_has_a_bound():
    assert len(scheduler_message(read(scheduled("False", "x" * 100_000)))) == MAX_SCHEDULER_MESSAGE


def test_pods_read_without_conditions_have_no_message():
    pod = read(scheduled("False", "x"), resource=PODS)
    assert type(pod.status) is PodStatus
    assert scheduler_message(pod) == ""
