"""A pod on a node that does not run, or that failed: the first thing in its way, by whom, and what helps.

What kubelet's own words are is seen on a real one (`tests/cluster/test_why_on_a_node.py`).
"""

import json
from collections.abc import Callable
from itertools import combinations

import pytest
from tests.unit.scheduler.explained import Raw, cluster, dump, gpu, gpus, node, pod

from purser.adapters.cluster_files import anonymize_objects, encode_objects, trim_objects
from purser.adapters.objects import objects_of_dump
from purser.cli.why_text import explanation_lines
from purser.core.explaining.reasons import FilterReason
from purser.core.explaining.start_reasons import StartReason
from purser.core.names import NOT_LISTED
from purser.kube.object_events import ObservedEvent, ObservedEventSource
from purser.kube.pod_details import ContainerState, ContainerStateWaiting, ContainerStatus
from purser.scheduler.explaining import Explainer, Obstacle
from purser.scheduler.explaining.starting import MAX_TEXT

REFUSAL = (
    "Allocate failed due to rpc error: code = Unknown desc = pod default/p: the GPU n-0 failed after it was granted, "
    "which is unexpected"
)

NOTHING_LEFT = "Allocate failed due to no healthy devices present, which is unexpected"
REFUSED = "pod default/p: the GPU n-0 failed after it was granted"


def waits(name: str, reason: str, message: str = "", last: Raw | None = None) -> Raw:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"name": name, "state": state, "lastState": {"terminated": last} if last else {}}


def exited(name: str, code: int, reason: str = "Error") -> Raw:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason}}}


def placed(**status: object) -> Raw:
    made = pod("p", gpu(9), on="n", share={"n-0": 9})
    made["status"] |= {"phase": "Pending", **status}
    return made


def machine(ready: str = "True", message: str = "") -> Raw:
    made = node("n", gpus("n", 1))
    made["status"]["conditions"] = [{"type": "Ready", "status": ready, "message": message}]
    return made


def explained(*objects: Raw, events: tuple[ObservedEvent, ...] = ()):
    read = cluster(*objects)
    warnings = {"uid-p": events} if events else {}
    return Explainer(read.__class__(**{**_fields(read), "warnings": warnings})).explain("default", "p")


def _fields(read):
    return {name: getattr(read, name) for name in read.__struct_fields__}


RUNS = {"name": "c", "state": {"running": {}}}


@pytest.mark.parametrize(
    ("status", "by", "reason", "text"),
    [
        (
            {"containerStatuses": [waits("c", "ErrImagePull", "no such\nimage")]},
            "container c",
            "ErrImagePull",
            "no such image",
        ),
        (
            {
                "initContainerStatuses": [
                    exited("done", 0, "Completed"),
                    waits("first", "CrashLoopBackOff", "back-off", {"exitCode": 3, "reason": "Error"}),
                ],
                "containerStatuses": [waits("c", "PodInitializing")],
            },
            "container first",
            "CrashLoopBackOff",
            "the last run ended: Error, exit code 3",
        ),
        (
            {"containerStatuses": [waits("a", "ContainerCreating"), waits("b", "InvalidImageName", "bad")]},
            "container b",
            "InvalidImageName",
            "bad",
        ),
        ({"containerStatuses": [waits("c", "ImageInspectError", "m")]}, "container c", "ImageInspectError", "m"),
        ({"containerStatuses": [waits("c", "ContainerCreating")]}, "container c", "ContainerCreating", ""),
        (
            {"phase": "Running", "containerStatuses": [exited("a", 0), waits("c", "RunContainerError", "m")]},
            "container c",
            "RunContainerError",
            "m",
        ),
        ({"phase": "Running", "containerStatuses": [exited("c", 3)]}, "container c", "Error", "exit code 3"),
        ({}, "kubelet", "ContainerCreating", StartReason.CREATING.happened),
        ({"startTime": None}, "kubelet", "NotAdmittedYet", StartReason.NOT_ADMITTED.happened),
    ],
)
def test_the_first_container_that_waits_for_something_it_names_is_in_the_way(status, by, reason, text):
    found = explained(machine(), placed(**status))
    remedy = next(each.remedy for each in StartReason if each == reason)
    assert (found.state, found.obstacle) == ("Placed", Obstacle(by, reason, text, remedy))
    assert found.choice is not None and found.choice.gpus, "and what it holds"


def several(*names: str, **status: object) -> Raw:
    made = placed(phase="Running", **status)
    made["spec"]["containers"] += [{"name": name, "image": "i"} for name in names]
    return made


@pytest.mark.parametrize(
    ("made", "others_run"),
    [
        (several("d", containerStatuses=[RUNS, waits("d", "CrashLoopBackOff", "m")]), True),
        (several("d", containerStatuses=[RUNS, exited("d", 3)]), True),
        (several(initContainerStatuses=[waits("sidecar", "CrashLoopBackOff", "m")], containerStatuses=[RUNS]), True),
        (several("d", containerStatuses=[exited("c", 0, "Completed"), exited("d", 3)]), False),
        (several("d", containerStatuses=[waits("c", "ErrImagePull", "m"), exited("d", 3)]), False),
    ],
)
def test_a_container_that_is_down_beside_others_that_run_is_told_from_a_pod_that_does_not_run(made, others_run):
    objects = cluster(machine(), made)
    found = Explainer(objects).explain("default", "p").obstacle
    assert found is not None and found.others_run == others_run
    assert Explainer(objects_of_dump(encode_objects(trim_objects(objects)))).explain("default", "p").obstacle == found


def test_a_pod_whose_containers_run_has_nothing_in_the_way():
    assert explained(machine("Unknown"), placed(phase="Running", containerStatuses=[RUNS])).obstacle is None
    assert explained(machine(), placed(phase="Running")).obstacle is None, "as in a file without containers' states"


def test_a_node_that_is_not_ready_or_gone_comes_before_what_events_said():
    event = ObservedEvent(reason="FailedMount", message="old", source=ObservedEventSource("kubelet"))
    creating = placed(containerStatuses=[waits("c", "ContainerCreating")])
    found = explained(machine("Unknown", "Kubelet stopped posting node status."), creating, events=(event,))
    assert found.obstacle is not None
    assert (found.obstacle.reason, found.obstacle.text) == ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    found = explained(machine("False", "PLEG is not healthy"), creating, events=(event,))
    assert found.obstacle == Obstacle(
        "kubelet", "KubeletNotReady", "PLEG is not healthy", StartReason.KUBELET_NOT_READY.remedy
    )
    gone = explained(creating, events=(event,))
    assert gone.obstacle is not None and gone.obstacle.reason == "NodeGone"
    found = explained(
        machine(),
        creating,
        events=(event, ObservedEvent(reason="DeviceInUse", message="new", reporting_component="purser-agent")),
    )
    assert found.obstacle == Obstacle("purser-agent", "DeviceInUse", "new")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"reason": "UnexpectedAdmissionError", "message": REFUSAL},
            ("device plugin", "UnexpectedAdmissionError", REFUSED, StartReason.ADMISSION.remedy),
        ),
        (
            {"reason": "UnexpectedAdmissionError", "message": NOTHING_LEFT},
            ("device plugin", "UnexpectedAdmissionError", "no healthy devices present", StartReason.ADMISSION.remedy),
        ),
        (
            {"reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough resource"},
            ("kubelet", "OutOfnvidia.com/gpu", "Node didn't have enough resource", StartReason.OUT_OF.remedy),
        ),
        ({"reason": "NodeAffinity", "message": "m"}, ("kubelet", "NodeAffinity", "m", FilterReason.AFFINITY.remedy)),
        ({"reason": "Terminated", "message": "m"}, ("kubelet", "Terminated", "m", StartReason.SHUT_DOWN.remedy)),
        (
            {"reason": "NodeShutdown", "message": "m"},
            ("kubelet", "NodeShutdown", "m", StartReason.SHUTTING_DOWN.remedy),
        ),
        ({"reason": "Newer", "message": "m"}, ("kubelet", "Newer", "m", "")),
        (
            {"containerStatuses": [exited("a", 0), exited("b", 137, "OOMKilled")]},
            ("container b", "OOMKilled", "exit code 137", StartReason.OUT_OF_MEMORY.remedy),
        ),
        ({"message": "only this"}, ("kubelet", "", "only this", "")),
    ],
)
def test_a_failed_pod_says_who_refused_it_and_what_helps(status, expected):
    found = explained(machine(), placed(phase="Failed", **status))
    assert (found.state, found.obstacle) == ("Ended", Obstacle(*expected))


def test_a_pod_that_succeeded_or_says_nothing_did_not_fail_for_anything():
    assert explained(machine(), placed(phase="Succeeded", containerStatuses=[exited("c", 0)])).obstacle is None
    assert explained(machine(), placed(phase="Failed")).obstacle is None


def test_what_others_write_is_one_line_of_bounded_length():
    long = placed(containerStatuses=[waits("c", "CreateContainerError", "\x1b[2Jx\n" * 5000)])
    found = explained(machine(), long).obstacle
    assert found is not None and found.text.isprintable() and len(found.text) <= MAX_TEXT


def test_a_snapshot_keeps_it_and_an_anonymized_one_without_the_words():
    objects = cluster(
        machine("False", "zebra is broken"),
        placed(
            containerStatuses=[RUNS, waits("zebra", "ErrImagePull", "zebra/image", {"message": "zebra", "exitCode": 1})]
        ),
    )
    whole = objects_of_dump(encode_objects(trim_objects(objects)))
    assert Explainer(whole).explain("default", "p") == Explainer(objects).explain("default", "p")
    (kept,) = whole.pods[0].status.container_statuses
    assert kept.name == "zebra", "what runs is left out"
    hidden = encode_objects(anonymize_objects(trim_objects(objects))[0])
    assert b"zebra" not in hidden
    (status,) = objects_of_dump(hidden).pods[0].status.container_statuses
    said = json.loads(hidden)
    assert "(omitted from" in json.dumps(said)
    assert status == ContainerStatus(
        status.name,
        state=ContainerState(ContainerStateWaiting("ErrImagePull", status.state.waiting.message)),
        last_state=status.last_state,
    )


def test_a_file_without_containers_states_is_read_as_before():
    objects = objects_of_dump(dump(node("n", gpus("n", 1)), pod("p", gpu(9), on="n", share={"n-0": 9})))
    assert Explainer(objects).explain("default", "p").obstacle is None


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({}, ""),
        ({"healthy": False, "unhealthy_reason": NOT_LISTED}, ""),
        (
            {"healthy": False, "unhealthy_reason": "Xid 79"},
            "GPU 0 (n-0): Xid 79. If you recreate the pod, the new pod gets other GPUs",
        ),
    ],
)
def test_a_pod_that_runs_on_an_unhealthy_gpu_is_told_so(facts, fault):
    running = placed(phase="Running", containerStatuses=[RUNS])
    found = Explainer(cluster(node("n", gpus("n", 1, **facts)), running)).explain("default", "p")
    assert found.obstacle is None and found.choice is not None and found.choice.fault == fault
    assert ("Unhealthy:" in "\n".join(explanation_lines(found))) == bool(fault)


def _waiting(name: str, reason: str) -> Callable[[Raw, Raw], None]:
    return lambda made, _: made["status"].setdefault("containerStatuses", []).append(waits(name, reason))


def _silent(_: Raw, where: Raw) -> None:
    where["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


def _refused(made: Raw, _: Raw) -> None:
    made["status"] |= {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": REFUSAL}


LINKS: tuple[tuple[str, Callable[[Raw, Raw], None]], ...] = (
    ("UnexpectedAdmissionError", _refused),
    ("ErrImagePull", _waiting("a", "ErrImagePull")),
    ("CreateContainerConfigError", _waiting("b", "CreateContainerConfigError")),
    ("CrashLoopBackOff", _waiting("c", "CrashLoopBackOff")),
    ("NodeStatusUnknown", _silent),
    ("GpuUnhealthy", lambda made, _: made.update(said="GpuUnhealthy")),
    ("ContainerCreating", _waiting("d", "ContainerCreating")),
)
"""What may be in the way on a node, device plugin, image, agent and kubelet, in the order in which it is looked for."""


@pytest.mark.parametrize(("first", "second"), list(combinations(LINKS, 2)))
def test_of_two_things_in_the_way_the_one_that_comes_first_is_named(first, second):
    made, where = placed(), machine()
    for _, happens in (first, second):
        happens(made, where)
    said = made.pop("said", "")
    events = (ObservedEvent(reason=said, source=ObservedEventSource("purser-agent")),) if said else ()
    found = explained(where, made, events=events).obstacle
    assert found is not None and found.reason == first[0]
