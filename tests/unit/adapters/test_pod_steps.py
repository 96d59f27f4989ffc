"""A pod's way, of its status as the API server has it."""

import msgspec
import pytest

from purser.adapters.pod_steps import steps_of
from purser.core.names import GRANT_ANNOTATION
from purser.kube.pod_details import ScheduledPod

MINUTE = "2027-01-15T08:00:"


def pod(*conditions, started="", **metadata):
    made = [
        {"type": type_, "status": status, "lastTransitionTime": f"{MINUTE}{second:02}Z"}
        for type_, status, second in conditions
    ]
    raw = {"metadata": {"creationTimestamp": f"{MINUTE}00Z", **metadata}, "status": {"conditions": made}}
    raw["status"]["startTime"] = started
    return msgspec.convert(raw, ScheduledPod)


def told(found):
    return [(each.name, each.seconds) for each in steps_of(found)]


def test_a_pod_that_runs_has_come_all_the_way():
    found = pod(
        ("ContainersReady", "True", 40),
        ("Initialized", "True", 12),
        ("PodReadyToStartContainers", "True", 15),
        ("PodScheduled", "True", 9),
        ("Ready", "True", 40),
        started=f"{MINUTE}10Z",
        annotations={GRANT_ANNOTATION: "{}"},
    )
    assert told(found) == [
        ("Created", 0),
        ("Scheduled, and GPUs granted", 9),
        ("Accepted by kubelet", 1),
        ("Init containers done", 2),
        ("Sandbox ready", 3),
        ("Containers ready", 25),
    ]
    assert steps_of(found)[1].time == f"{MINUTE}09Z"


def test_a_pod_that_waits_was_refused():
    assert told(pod(("PodScheduled", "False", 2))) == [("Created", 0), ("First refused by its scheduler", 2)]


def test_a_pod_with_gates_was_refused_by_nobody():
    gated = pod(("PodScheduled", "False", 0))
    gated = msgspec.structs.replace(gated, spec=msgspec.structs.replace(gated.spec, scheduling_gates=({"name": "g"},)))
    assert told(gated) == [("Created", 0), ("Held by scheduling gates", 0)]


def test_what_has_not_happened_is_no_step():
    found = pod(("PodScheduled", "True", 1), ("Initialized", "False", 2), ("ContainersReady", "False", 2))
    assert told(found) == [("Created", 0), ("Scheduled", 1)]


@pytest.mark.parametrize("time", ["", "yesterday", "\x1b"])
def test_times_that_cannot_be_read_are_left_out(time):
    assert told(pod(creationTimestamp=time)) == []
    assert told(pod(("PodScheduled", "True", 1), creationTimestamp=time)) == [("Scheduled", 0)]
