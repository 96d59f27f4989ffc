"""A history out of a scheduler's decision log, as the live scheduler writes it."""

import math

import msgspec
import pytest
from tests.unit.core.decisions.scheduling_world import LoggedScheduler, as_file
from tests.unit.simulator.builders import as_listed, node, workload

from purser.backtest.dump import HistoryError
from purser.backtest.history import NothingToReplay, Omission, Omissions
from purser.backtest.logs import history_of_logs
from purser.backtest.reconstruction import Reconstruction
from purser.core.decisions import encode
from purser.core.decisions.notes import DecisionInputs, JudgedNote, PlacedNote
from purser.core.decisions.records import InventoryTaken, Moment, NodeSeen, SchedulingStart
from purser.core.fleet import FreeResources
from purser.core.grant.quota import UNLIMITED
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    GpuPolicy,
    GrantState,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Placement, PolicySettings, best, to_grant
from purser.core.placement.shape import PodShape
from purser.simulator import arrivals
from purser.simulator.decision_log import opened
from purser.simulator.workload import SimNodeChange

BINPACK = PolicySettings("binpack", (GpuPolicy.BINPACK,))


def request(name, memory_mib=4000, count=1):
    asked = DeviceRequest(count, memory_mib=memory_mib)
    containers = (ContainerRequest("main", ContainerKind.APP, asked),)
    return PodRequest(f"u-{name}", "ns", name, containers, cpu_milli=500, memory_mib=64)


def inventory(name, gpus=2):
    return NodeInventory(name, tuple(Device(f"{name}-{at}", at, "T4", 8000, slots=10) for at in range(gpus)))


class Cluster:
    """A logged scheduler whose pods are bound and end."""

    def __init__(self, *nodes, policy=BINPACK, at=1000.0):
        self.world = LoggedScheduler(policy)
        self.world.at = at
        for name in nodes:
            self.world.fleet.set_inventory(inventory(name))
            self.world.fleet.set_free_resources(name, FreeResources(8000, 4096, 110))
        self.world.new_file()

    def at(self, at):
        self.world.at = float(at)
        return self

    def judge(self, asked, *nodes, created=""):
        """What kube-scheduler asks first: the node to bind to."""
        found = self.world.evaluator.evaluate(asked, list(nodes), UNLIMITED, None)
        inputs = DecisionInputs(asked, UNLIMITED, {}, created)
        self.world.notes[-1] += self.world.recording.judged(self.world.at, inputs, found, "filter")
        return best(found)

    def decide(self, asked, *nodes, bind=True):
        node = self.judge(asked, *nodes)
        placed = None if node is None else self.world.place(node, asked)
        if not isinstance(placed, Placement):
            return self
        ledger = self.world.fleet.ledger
        ledger.release(asked.uid)
        ledger.adopt(to_grant(placed, asked, self.world.fleet.node(node).inventory), GrantState.RESERVED)
        if bind:
            self.world.notes[-1] += self.world.recording.bound(self.world.at, asked.uid)
            ledger.advance(asked.uid, GrantState.BOUND)
        return self

    def end(self, asked):
        self.world.fleet.ledger.release(asked.uid)
        self.world.notes[-1] += self.world.recording.changes(self.world.at)
        return self

    def deleted(self, asked):
        """While it waits."""
        self.world.notes[-1] += self.world.recording.gone(self.world.at, asked.uid)
        return self

    def gone(self, name):
        self.world.fleet.remove_node(name)
        self.world.notes[-1] += self.world.recording.changes(self.world.at)
        return self

    def history(self, folder, change=lambda files: files):
        files = change([as_file(records) for records in self.world.files])
        paths = []
        for number, data in enumerate(files):
            paths.append(folder / f"{number}.log")
            paths[-1].write_bytes(data)
        return history_of_logs(reversed(paths), Omissions())


def times(pod):
    return tuple(None if math.isinf(at) else at - 1000 for at in (pod.created_s, pod.bound_s, pod.ended_s))


def told(history):
    return {pod.name: times(pod) for pod in history.pods}


A, B, C = request("a", 6000), request("b", 6000), request("c", 6000)


def test_pods_come_wait_and_end(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").at(1020).decide(B, "n1").at(1030).decide(C, "n1")
    cluster.at(1100).end(A).at(1101).decide(C, "n1").at(1200).end(C)
    found = cluster.history(tmp_path)
    assert told(found) == {"ns/a": (10, 10, 100), "ns/b": (20, 20, None), "ns/c": (30, 101, 200)}
    assert {pod.shape for pod in found.pods} == {PodShape(500, 64, 1, 6000)}
    assert (found.begin_s, found.end_s, found.policy, found.left_out) == (1000, 1200, "binpack", ())
    [there] = found.nodes
    assert (there.facts.name, len(there.facts.gpus), there.since_s) == ("n1", 2, -math.inf)
    assert (there.facts.cpu_free_milli, there.facts.memory_free_mib, there.facts.pods_free) == (8000, 4096, 110)


def test_a_pod_was_created_when_it_says_so(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1")
    cluster.at(1050).judge(B, "n1", created="1970-01-01T00:16:45Z")
    cluster.at(1060).decide(B, "n1").at(1070).end(A)
    assert told(cluster.history(tmp_path))["ns/b"] == (5, 60, None)


def test_what_was_never_bound_waits_again(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1", bind=False).at(1015).end(A).at(1040).decide(A, "n1")
    assert told(cluster.at(1050).end(A).history(tmp_path)) == {"ns/a": (10, 40, 50)}


def test_the_next_file_says_who_has_ended_meanwhile(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").decide(B, "n1")
    cluster.world.fleet.ledger.release(A.uid)
    cluster.at(1500).world.new_file()
    found = cluster.at(1600).end(B).history(tmp_path)
    assert told(found) == {"ns/a": (10, 10, 500), "ns/b": (10, 10, 600)}


def test_who_held_gpus_before_the_log_is_known_by_that(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1")
    cluster.at(1500).world.new_file()
    found = cluster.at(1510).decide(B, "n1").at(1600).end(A).history(tmp_path, lambda files: files[1:])
    assert told(found) == {"ns/a": (500, 500, 600), "ns/b": (510, 510, None)}
    assert found.pods[0].shape == PodShape(0, 0, 1, 6000)
    assert found.left_out == ()


def test_nodes_come_and_go(tmp_path):
    cluster = Cluster("n1", "n2").at(1010).decide(A, "n1")
    cluster.at(1100).world.fleet.set_inventory(inventory("n3"))
    found = cluster.decide(B, "n3").at(1200).gone("n1").at(1300).end(B).history(tmp_path)
    there = {each.facts.name: (each.since_s, each.until_s) for each in found.nodes}
    assert there == {"n1": (-math.inf, 1200), "n2": (-math.inf, math.inf), "n3": (1100, math.inf)}
    assert told(found) == {"ns/a": (10, 10, 200), "ns/b": (100, 100, 300)}


def test_a_node_that_went_and_came_again_was_away_in_between(tmp_path):
    cluster = Cluster("n1", "n2").at(1010).decide(A, "n1").at(1100).gone("n2").at(1400)
    cluster.world.fleet.set_inventory(inventory("n2"))
    found = cluster.decide(B, "n2").at(1500).gone("n2").at(2000).end(A).history(tmp_path)
    there = found.nodes[1]
    assert (there.since_s, there.until_s, there.away) == (-math.inf, 1500, ((1100, 1400),))
    of = Reconstruction(found)
    held = 0.75 * 990 + 0.75 * 100
    assert of.source.allocation_percent == pytest.approx(100 * held / (2 * 1000 + 2 * (100 + 100)))
    assert [each for each in of._changes(found.nodes) if each.node == "n2"] == [
        SimNodeChange(100.0, "n2", is_open=False),
        SimNodeChange(400.0, "n2", is_open=True),
        SimNodeChange(500.0, "n2", is_open=False),
    ]


def test_a_node_that_the_next_file_does_not_name_went_when_that_began(tmp_path):
    cluster = Cluster("n1", "n2").at(1010).decide(A, "n1").decide(B, "n2")
    cluster.world.fleet.remove_node("n2")
    cluster.at(1500).world.new_file()
    cluster.at(1600).decide(C, "n1").at(1800)
    cluster.world.fleet.set_inventory(inventory("n2"))
    found = cluster.at(1900).end(A).history(tmp_path)
    assert (found.nodes[0].until_s, found.nodes[0].away) == (math.inf, ())
    assert (found.nodes[1].until_s, found.nodes[1].away) == (math.inf, ((1500, 1900),))
    assert told(found)["ns/b"] == (10, 10, None), "it holds GPUs of the node when that comes again"


def test_a_reservation_that_moved_is_of_the_node_where_it_is_now(tmp_path):
    cluster = Cluster("n1", "n2").at(1010).decide(A, "n2", bind=False)
    cluster.at(1020).world.notes[-1] += cluster.world.recording.changes(1020.0)
    cluster.at(1030).decide(A, "n1").at(1100).end(A)
    found = cluster.history(tmp_path)
    assert (told(found), found.pods[0].node) == ({"ns/a": (10, 30, 100)}, "n1")


def test_a_pod_that_was_deleted_while_it_waited_is_left_out_and_counted(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").decide(B, "n1").at(1020).decide(C, "n1")
    found = cluster.at(1100).deleted(C).at(1200).end(A).history(tmp_path)
    assert told(found) == {"ns/a": (10, 10, 200), "ns/b": (10, 10, None)}
    why = "pods that were left out because they were deleted while they waited"
    assert found.left_out == (Omission(why, 1, "ns/c"),)


@pytest.mark.parametrize(("tried_s", "is_there"), [(1500, False), (1950, True)])
def test_a_pod_that_waits_is_tried_again_or_is_there_no_more(tmp_path, tried_s, is_there):
    """In a log that has nothing of its deletion, as while no replica wrote one."""
    cluster = Cluster("n1").at(1010).decide(A, "n1").decide(B, "n1").at(1020).decide(C, "n1")
    found = cluster.at(tried_s).decide(C, "n1").at(2400).end(A).history(tmp_path)
    assert ("ns/c" in told(found)) is is_there
    assert [each.count for each in found.left_out if "not tried" in each.what] == [1] * (not is_there)


@pytest.mark.parametrize(
    "device", [Device("d", 0, "T4", 8000, slots=10**6), Device("d", 0, "T4", 8000, numa_nodes=(-5,))]
)
def test_an_inventory_beyond_all_limits_costs_itself_alone(tmp_path, device):
    cluster = Cluster("n1").at(1010).decide(A, "n1").at(1100).end(A)

    def with_odd_node(files):
        odd = [Moment(1150.0), NodeSeen("n2"), InventoryTaken(1, NodeInventory("n2", (device,)))]
        return [files[0] + b"".join(map(encode, odd))]

    found = cluster.history(tmp_path, with_odd_node)
    assert [each.facts.name for each in found.nodes] == ["n1"]
    assert [each.what for each in found.left_out] == [
        "records that were left out because they are inconsistent with those before them"
    ]


def test_pods_on_which_no_decision_is_logged_are_counted(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").at(1100).end(A)
    cluster.world.notes = [
        [each for each in notes if not isinstance(each, JudgedNote | PlacedNote)] for notes in cluster.world.notes
    ]
    found = cluster.history(tmp_path)
    assert told(found) == {"ns/a": (10, 10, 100)}
    assert [(each.what.split(",")[0], each.count) for each in found.left_out] == [
        ("pods without a decision in the log", 1)
    ]


def test_a_log_that_ends_within_a_record_counts_as_far_as_it_goes(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").at(1100).end(A).at(1200).decide(B, "n1")
    found = cluster.history(tmp_path, lambda files: [files[0][:-3]])
    assert told(found)["ns/a"] == (10, 10, 100)
    assert [each.what for each in found.left_out] == ["logs that cannot be read to the end, replayed up to that point"]


def test_time_never_goes_back(tmp_path):
    cluster = Cluster("n1").at(1010).decide(A, "n1").at(900).decide(B, "n1").at(1100).end(A)
    assert told(cluster.history(tmp_path)) == {"ns/a": (10, 10, 100), "ns/b": (10, 10, None)}


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (PolicySettings(), "purser"),
        (PolicySettings("spread", (GpuPolicy.BINPACK,)), "spread/binpack"),
        (PolicySettings("spread", (GpuPolicy.MUTEX, GpuPolicy.BINPACK)), "spread/binpack"),
        (PolicySettings("spread", (GpuPolicy.MUTEX,)), "spread"),
    ],
)
def test_the_policy_in_force_is_the_logs(tmp_path, policy, words):
    cluster = Cluster("n1", policy=policy).at(1010).decide(A, "n1").at(1020).end(A)
    assert cluster.history(tmp_path).policy == words


def test_logs_of_simulations_have_no_times(tmp_path):
    of = workload([node("n1")], [PodShape(gpu_count=1, gpu_memory_mib=1000)])
    with opened(str(tmp_path / "log")) as log:
        arrivals.run(of, as_listed(of), "binpack", log=log)
    with pytest.raises(HistoryError, match="without times"):
        history_of_logs([tmp_path / "log"], Omissions())


def test_what_is_no_log_is_refused(tmp_path):
    (tmp_path / "log").write_bytes(b"hello")
    with pytest.raises(HistoryError, match="not a decision log"):
        history_of_logs([tmp_path / "log"], Omissions())
    with pytest.raises(HistoryError, match="No such file"):
        history_of_logs([tmp_path / "none"], Omissions())


def test_a_log_without_pods_has_nothing_to_replay(tmp_path):
    with pytest.raises(NothingToReplay):
        Cluster("n1").history(tmp_path)
    start = SchedulingStart(2, "x", BINPACK, math.nan)
    (tmp_path / "log").write_bytes(as_file([start, msgspec.structs.replace(start, at=math.inf)]))
    with pytest.raises(NothingToReplay):
        history_of_logs([tmp_path / "log"], Omissions())
