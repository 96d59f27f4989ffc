"""A history out of events: what each says, and what odd ones do to it."""

import json
import math
import random
from contextlib import nullcontext

import pytest
from tests.unit.backtest.told import (
    BEGIN_S,
    bound,
    dump_of,
    event,
    granted,
    killed,
    life,
    listed,
    node_object,
    pod_object,
    refused,
)
from tests.unit.simulator.builders import node, share, whole

from purser.backtest.dump import HistoryError, read_dumps
from purser.backtest.events import history_of_dump
from purser.backtest.history import HistoryNode, HistoryPod, NothingToReplay, Omissions, history_of
from purser.backtest.obstacles import CLAIMING_PODS, GATED_PODS, OF_OTHERS, SELECTIVE_PODS
from purser.core.names import ASKED_ANNOTATION, INVENTORY_ANNOTATION

N1 = node("n1", 4)
END = event("last", "c", "Hello", "", BEGIN_S + 1000, kind="ConfigMap")
FIRST = event("first", "c", "Hello", "", BEGIN_S, kind="ConfigMap")


def history(*items, nodes=(N1,), texts=()):
    omissions = Omissions()
    found = [node_object(each) for each in nodes] + [FIRST, END]
    for each in items:
        found += each if isinstance(each, list) else [each]
    dump = dump_of(b"\n".join([listed(found), *texts]), omissions)
    return history_of_dump(dump, "test", omissions)


def times(pod):
    return tuple(None if math.isinf(at) else at - BEGIN_S for at in (pod.created_s, pod.bound_s, pod.ended_s))


def left_out(found):
    return {each.what: each.count for each in found.left_out}


A = life("a", "u-a", "n1", whole(2), (10, 50, 200))


def test_a_pod_that_is_gone_is_known_by_its_events():
    found = history(A)
    [pod] = found.pods
    assert (pod.name, pod.node, pod.shape) == ("ns/a", "n1", whole(2))
    assert times(pod) == (10, 50, 200)
    assert (found.begin_s, found.end_s, found.left_out) == (BEGIN_S, BEGIN_S + 1000, ())
    assert [each.facts.name for each in found.nodes] == ["n1"]


def test_the_order_of_events_does_not_matter_nor_how_often_each_is_there():
    several = [*A, *A, *life("b", "u-b", "n1", share(250), (20, 20, 300))]
    random.Random(1).shuffle(several)
    assert history(several) == history(A, life("b", "u-b", "n1", share(250), (20, 20, 300)))


def test_an_event_that_was_counted_up_counts_as_it_was_seen_last():
    early, late = refused("a", "u-a", BEGIN_S + 10), refused("a", "u-a", BEGIN_S + 10)
    late |= {"count": 20, "lastTimestamp": "2026-09-21T15:00:00Z"}
    gone = [late, granted("a", "u-a", "n1", whole(1), BEGIN_S + 60), killed("a", "u-a", BEGIN_S + 90)]
    assert times(history(gone, early).pods[0]) == times(history(early, gone).pods[0]) == (10, 60, 90)


def test_kube_schedulers_newer_events_have_exact_times():
    newer = bound("a", "u-a", "n1", BEGIN_S + 60) | {
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": "2026-09-21T14:14:20.250000Z",
        "count": None,
        "series": None,
    }
    asks = granted("a", "u-a", "n1", whole(1), BEGIN_S + 61)
    assert history(newer, asks).pods[0].bound_s == BEGIN_S + 60.25


def test_what_others_say_in_whole_seconds_is_no_closer_to_it():
    """Purser's Granted, cut off to its second, is no earlier binding; what kubelet says is in the middle of its own."""
    exactly = {"firstTimestamp": None, "lastTimestamp": None}
    tried = refused("a", "u-a", BEGIN_S + 10) | {**exactly, "eventTime": "2026-09-21T14:13:30.125000Z"}
    newer = bound("a", "u-a", "n1", BEGIN_S + 60) | {**exactly, "eventTime": "2026-09-21T14:14:20.250000Z"}
    asks = granted("a", "u-a", "n1", whole(1), BEGIN_S + 60)
    assert times(history(tried, newer, asks, killed("a", "u-a", BEGIN_S + 90)).pods[0]) == (10.125, 60.25, 90.5)


def named(told, nanoseconds):
    told["metadata"]["name"] = f"{told['involvedObject']['name']}.{nanoseconds:x}"
    return told


def test_an_events_name_has_the_nanosecond_of_its_first_time_where_it_agrees_with_it():
    """As client-go, and so kubelet, names events; anything else that looks so is none."""
    ends = [(90, 250_000_000, 90.25), (90, -1, 90), (90, 1_000_000_000, 90)]
    for at, more, ended in ends:
        end = named(killed("a", "u-a", BEGIN_S + at), (BEGIN_S + at) * 1_000_000_000 + more)
        assert times(history(A[:-1], end).pods[0]) == (10, 50, pytest.approx(ended, abs=1e-6))


def test_pods_of_one_name_are_told_apart_by_uid():
    again = life("a", "u-2", "n1", share(500), (210, 220, 300))
    controllers = [
        event("set", "r", "SuccessfulCreate", "Created pod: a", BEGIN_S + at, kind="ReplicaSet") for at in (5, 205)
    ]
    found = history(A, again, controllers)
    assert [times(pod) for pod in found.pods] == [(5, 50, 200), (205, 220, 300)]
    assert [pod.shape for pod in found.pods] == [whole(2), share(500)]


def test_a_job_tells_the_end_of_a_pod_that_ended_by_itself():
    told = [
        event("job", "j", "SuccessfulCreate", "Created pod: a", BEGIN_S + 10, kind="Job"),
        event("job", "j", "Completed", "Job completed", BEGIN_S + 400, kind="Job"),
    ]
    assert times(history(A[:-1], told).pods[0]) == (10, 50, 400)


def test_a_container_that_is_restarted_has_not_ended():
    restarted = event("a", "u-a", "Killing", "Container main failed liveness probe, will be restarted", BEGIN_S + 90)
    assert times(history(A, restarted).pods[0]) == (10, 50, 200)


def test_a_pod_that_is_evicted_has_ended_unless_that_was_called_off():
    marked = event("a", "u-a", "TaintManagerEviction", "Marking for deletion Pod ns/a", BEGIN_S + 90)
    cancelled = event("a", "u-a", "TaintManagerEviction", "Cancelling deletion of Pod ns/a", BEGIN_S + 90)
    assert times(history(A[:-1], marked).pods[0]) == (10, 50, 90)
    assert times(history(A[:-1], cancelled).pods[0]) == (10, 50, None)


def test_a_pod_without_an_end_runs_on_unless_pods_are_listed():
    found = history(A[:-1])
    assert times(found.pods[0]) == (10, 50, None)
    assert left_out(found) == {"pods without an event that records their end, replayed as still running": 1}
    other = pod_object("b", "u-b", {"nvidia.com/gpu": "1"}, BEGIN_S + 1, {"phase": "Pending"})
    found = history(A[:-1], other)
    assert [pod.name for pod in found.pods] == ["ns/b"]
    assert left_out(found) == {"deleted pods that were left out because no event records when they ended": 1}


def test_pods_that_are_still_there_say_it_themselves():
    ended = {
        "phase": "Succeeded",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-09-21T14:14:00Z"}],
        "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-09-21T14:20:00Z"}}}],
    }
    asked = {"nvidia.com/gpu": "2"}
    found = history(
        pod_object("done", "u-1", asked, BEGIN_S + 5, ended, node="n1"),
        pod_object("waits", "u-2", asked, BEGIN_S + 6, {"phase": "Pending"}),
        pod_object("plain", "u-3", {"cpu": "1"}, BEGIN_S + 7, {"phase": "Running"}, node="n1"),
    )
    done, waits = found.pods
    assert times(done) == (5, 40, 400)
    assert times(waits) == (6, None, None)
    assert found.nodes[0].facts.cpu_free_milli == N1.cpu_free_milli - 1000


def test_priorities_which_the_replay_does_not_know_are_told():
    urgent = pod_object("urgent", "u-1", {"nvidia.com/gpu": "1"}, BEGIN_S + 5, {"phase": "Pending"})
    urgent["spec"]["priority"] = 1000
    other = pod_object("other", "u-2", {"nvidia.com/gpu": "1"}, BEGIN_S + 5, {"phase": "Pending"})
    assert history(urgent).notes == ()
    [note] = history(urgent, other).notes
    assert note.startswith("pods have 2 different priorities")


def test_obstacles_of_listed_pods_that_the_replay_does_not_know_are_told():
    def waits(name, *, message="", gpus="1", created_s=5, **spec):
        refusal = {"type": "PodScheduled", "status": "False", "message": message}
        status = {"phase": "Pending", "conditions": [refusal]}
        made = pod_object(name, f"u-{name}", {"nvidia.com/gpu": gpus}, BEGIN_S + created_s, status)
        made["spec"] |= {"schedulerName": "purser-scheduler", **spec}
        return made

    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    found = history(
        waits("plain"),
        waits("short", message="0/1 nodes are available: 1 Insufficient nvidia.com/gpu."),
        waits("gated", schedulingGates=[{"name": "example.org/quota"}]),
        waits("selects", nodeSelector={"zone": "a"}),
        waits("near", affinity=affinity),
        waits("spread", topologySpreadConstraints=[{"topologyKey": "zone"}]),
        waits("claims", message='0/1 nodes are available: persistentvolumeclaim "gone" not found.'),
        waits("unbound", message="0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        waits("of-kai", schedulerName="kai-scheduler"),
        waits("of-none", schedulerName=""),
        waits("without", gpus="0", nodeSelector={"zone": "a"}),
        waits("later", created_s=2000, nodeSelector={"zone": "a"}),
    )
    assert {pod.name for pod in found.pods} == {
        f"ns/{name}"
        for name in ("plain", "short", "selects", "near", "spread", "claims", "unbound", "of-kai", "of-none")
    }
    assert [(each.what, each.count, each.example) for each in found.left_out] == [
        (GATED_PODS, 1, "ns/gated"),
        (SELECTIVE_PODS, 3, "ns/selects"),
        (CLAIMING_PODS, 2, 'ns/claims: 0/1 nodes are available: persistentvolumeclaim "gone" not found.'),
        (OF_OTHERS, 2, "ns/of-kai: kai-scheduler, not purser-scheduler"),
    ]


def test_what_is_left_out_is_counted_and_named():
    found = history(
        A,
        bound("cpu-only", "u-c", "n1", BEGIN_S + 5),
        refused("gone", "u-d", BEGIN_S + 5),
        event("e", "", "Scheduled", "", BEGIN_S + 5),
        event("f", "u-f", "Granted", "", BEGIN_S + 5, annotations={ASKED_ANNOTATION: '{"gpu_count": -1}'}),
        event("g", "u-g", "Scheduled", "", BEGIN_S + 5) | {"firstTimestamp": None, "lastTimestamp": "soon"},
        life("h", "u-h", "n9", whole(1), (10, 20, 30)),
        event("long", "u-i", "Scheduled", "", BEGIN_S - 40 * 365 * 86400),
    )
    assert [pod.name for pod in found.pods] == ["ns/a"]
    assert sorted(left_out(found).values()) == [1] * 7
    examples = {each.example for each in found.left_out}
    assert examples >= {"ns/cpu-only", "ns/gone", "ns/e", "ns/g", "ns/h on n9", "ns/long"}


def test_a_node_whose_clock_is_behind_is_set_right():
    started = event("a", "u-a", "Started", "Started container main", BEGIN_S + 50 - 300)
    late = event("a", "u-a", "Started", "Started container main", BEGIN_S + 52)
    behind = history(
        [*A[:-1], killed("a", "u-a", BEGIN_S + 250 - 300), started], life("b", "u-b", "n1", whole(1), (9, 9, 10))
    )
    assert {pod.name: times(pod) for pod in behind.pods}["ns/a"] == (10, 50, 250)
    assert "nodes whose clock is slow and whose times were corrected" in left_out(behind)
    assert times(history(A, late).pods[0]) == (10, 50, 200)


def test_times_that_contradict_one_another_are_taken_as_the_least_that_makes_sense():
    found = history([*A[:-1], killed("a", "u-a", BEGIN_S + 20)])
    assert times(found.pods[0]) == (10, 50, 50)
    assert "pods with contradictory times, which were corrected as little as possible" in left_out(found)


def test_nodes_come_and_go():
    came = node_object(node("n2", 4), created_s=BEGIN_S + 100)
    gone = event(
        "n1", "n1", "RemovingNode", "Node n1 event: Removing Node n1 from Controller", BEGIN_S + 500, kind="Node"
    )
    found = history(A, came, gone)
    assert [(each.since_s - BEGIN_S, each.until_s - BEGIN_S) for each in found.nodes] == [
        (-86400, 500),
        (100, math.inf),
    ]


def test_nodes_without_an_inventory_have_what_kubelet_lists():
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}
    plain = {
        "kind": "Node",
        "metadata": {"name": "n2", "labels": labels},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}},
    }
    without = {"kind": "Node", "metadata": {"name": "n3"}, "status": {"allocatable": {"cpu": "8"}}}
    found = history(A, plain, without)
    facts = found.nodes[1].facts
    assert (facts.name, len(facts.gpus), facts.gpus[0].model, facts.gpus[0].memory_mib) == ("n2", 4, "Tesla-T4", 15360)
    assert (facts.cpu_free_milli, facts.memory_free_mib, facts.pods_free) == (8000, 32 * 1024, 110)
    assert found.notes == ("node n3 is skipped because it has no inventory",)


def test_objects_one_after_the_other_are_read_as_watches_print_them(tmp_path):
    lines = b"\n".join(json.dumps(each).encode() for each in [node_object(N1), *A])
    blocks = b"\n".join(json.dumps(each, indent=4).encode() for each in [FIRST, END, *A])
    (tmp_path / "lines").write_bytes(lines + b"\n{\n")
    (tmp_path / "blocks").write_bytes(blocks)
    omissions = Omissions()
    dump = read_dumps([tmp_path / "lines", tmp_path / "blocks"], omissions)
    assert history_of_dump(dump, "test", Omissions()) == history(A)
    assert [each.what for each in omissions.found] == ["unreadable objects, which were left out"]


def test_of_a_node_in_several_files_the_newest_counts_in_whatever_order_they_come(tmp_path):
    paths = []
    for version, gpus in (("999", 8), ("1000", 4), ("", 2)):
        paths.append(tmp_path / f"{gpus}")
        paths[-1].write_bytes(listed([node_object(node("n1", gpus), resourceVersion=version)]))

    def gpus(*order):
        [found] = read_dumps(order, Omissions()).nodes
        return found.metadata.annotations[INVENTORY_ANNOTATION].count("GPU-n1")

    old, new, unknown = paths
    assert (gpus(old, new), gpus(new, old)) == (4, 4)
    assert (gpus(new, unknown), gpus(unknown, new)) == (2, 4), "of one without a version it is the last"


@pytest.mark.parametrize("text", [b"", b"hello", b"[]", b'{"a": 1}', b"\xff\xfe", b"{"])
def test_what_is_no_list_of_objects_is_refused(text):
    with pytest.raises(HistoryError, match="the file"):
        dump_of(text, Omissions())


@pytest.mark.parametrize(
    ("days", "says"), [(0, "fewer than two different"), (365, ""), (800, "800 days, more than the maximum of 366")]
)
def test_a_past_of_no_time_and_one_of_years_are_told_apart(days, says):
    end_s = BEGIN_S + 86400 * days
    pods = [HistoryPod("ns/a", whole(1), BEGIN_S, "n1", BEGIN_S, end_s)]
    with pytest.raises(NothingToReplay, match=says) if says else nullcontext():
        history_of("test", BEGIN_S, end_s, [HistoryNode(N1)], pods, Omissions(), [])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(HistoryError, match="No such file"):
        read_dumps([tmp_path / "none"], Omissions())


@pytest.mark.parametrize(
    "items", [[], [FIRST, END], [node_object(N1)], [node_object(N1), FIRST, END], [FIRST, END, *A]]
)
def test_without_nodes_or_pods_or_times_there_is_nothing_to_replay(items):
    omissions = Omissions()
    with pytest.raises(NothingToReplay):
        history_of_dump(dump_of(listed(items), omissions), "test", omissions)
