"""Operands that were let in and get no pod, and writes that the server refuses: status tells, at once or in time."""

import pytest
from tests.unit.operator.world import World

from purser.core.kubernetes.taints import Taint
from purser.core.kubernetes.times import parsed
from purser.operator.gates.progress import PROGRESS_DEADLINE_S, untolerated_taint
from purser.operator.model import NodeView, PatchNode
from purser.operator.names import LET_IN_ANNOTATION
from purser.operator.order import Operand


@pytest.fixture
def world() -> World:
    found = World()
    found.add_policy()
    found.add_node("a")
    return found


def failing(world: World) -> list[tuple[str, str, str]]:
    return [(each["name"], each["operand"], each["reason"]) for each in world.status()["failingNodes"]]


def rounds(world: World, count: int = 3) -> None:
    """Without anybody who would make pods."""
    for _ in range(count):
        world.round()
        world.now += 1


def test_an_admitted_operand_gets_its_start_time_in_the_same_write(world: World) -> None:
    world.settle()
    opening = [
        each
        for each in world.history
        if isinstance(each, PatchNode) and "true" in {each.labels.get(one.deploy_label) for one in Operand}
    ]
    assert len(opening) >= 4
    assert all(parsed(each.annotations[LET_IN_ANNOTATION]) is not None for each in opening[1:])
    assert LET_IN_ANNOTATION not in world.nodes["a"].annotations


def test_an_operand_without_a_pod_fails_after_a_while(world: World) -> None:
    rounds(world)
    assert failing(world) == []
    soon = world.round().requeue_after_s
    assert soon is not None and PROGRESS_DEADLINE_S - 60 < soon <= PROGRESS_DEADLINE_S
    world.wait(soon)
    rounds(world)
    assert failing(world) == [("a", "driver", "NoPod")]
    assert world.condition("Degraded")["reason"] == "NodesFailing"
    assert world.round().actions == ()
    world.settle()
    assert world.condition("Ready")["status"] == "True"


@pytest.mark.parametrize("written", ["soon", "", "2999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_or_is_still_to_come_restarts(world: World, written: str) -> None:
    rounds(world)
    world.annotate("a", LET_IN_ANNOTATION, written)
    rounds(world)
    world.wait(PROGRESS_DEADLINE_S)
    rounds(world)
    assert failing(world) == [("a", "driver", "NoPod")]


def test_a_pod_that_goes_late_is_not_one_that_never_came(world: World) -> None:
    """Long after an operand was let in its pod is replaced: for a moment there is none, and nothing fails."""
    world.settle()
    world.wait(10 * PROGRESS_DEADLINE_S)
    pod = world.pod("a", Operand.GFD)
    assert pod is not None
    del world.pods[pod.uid]
    rounds(world)
    assert failing(world) == []
    world.settle()
    assert failing(world) == []
    assert LET_IN_ANNOTATION not in world.nodes["a"].annotations


def test_on_a_node_that_fails_for_long_a_pod_that_goes_is_not_one_that_never_came_either(world: World) -> None:
    world.troubles["a", Operand.DCGM_EXPORTER.value] = "CrashLoopBackOff"
    world.run(30)
    world.wait(2 * PROGRESS_DEADLINE_S)
    world.run(30)
    assert failing(world) == [("a", "dcgm-exporter", "CrashLoopBackOff")]
    pod = world.pod("a", Operand.GFD)
    assert pod is not None
    del world.pods[pod.uid]
    rounds(world)
    assert failing(world) == [("a", "dcgm-exporter", "CrashLoopBackOff")]


def test_a_pod_that_does_not_go_is_reported_separately(world: World) -> None:
    world.settle()
    world.lingering = True
    for pod in world.on("a"):
        if pod.operand == Operand.GFD:
            world._set_pod(pod, terminating=True)
    rounds(world)
    (gfd,) = [each for each in world.status()["operands"] if each["name"] == "gpu-feature-discovery"]
    assert "the old pod is still terminating" in gfd["message"]
    world.wait(PROGRESS_DEADLINE_S)
    rounds(world)
    assert failing(world) == [("a", "gpu-feature-discovery", "NoPod")]


def test_a_taint_that_pods_do_not_tolerate_is_named_at_once(world: World) -> None:
    world.taint("a", "team")
    world.settle()
    (node,) = world.status()["failingNodes"]
    assert (node["operand"], node["reason"]) == ("driver", "Untolerated")
    assert "taint team:NoSchedule: add a toleration to spec.daemonsets.tolerations" in node["message"]
    world.change_policy({"daemonsets": {"tolerations": [{"key": "team", "operator": "Exists"}]}})
    world.settle()
    assert world.condition("Ready")["status"] == "True"


def test_a_taint_does_no_harm_where_pods_are_already(world: World) -> None:
    world.settle()
    world.taint("a", "team")
    world.settle()
    assert failing(world) == []


TOLERATED = [
    ({"operator": "Exists"}, True),
    ({"key": "team", "operator": "Exists"}, True),
    ({"key": "team", "operator": "Exists", "effect": "NoSchedule"}, True),
    ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
    ({"key": "team", "value": "x"}, True),
    ({"key": "team", "operator": "Equal", "value": "y"}, False),
    ({"key": "team"}, False),
    ({"key": "other", "operator": "Exists"}, False),
    ({"value": "x"}, False),
]


@pytest.mark.parametrize(("toleration", "tolerates"), TOLERATED, ids=str)
def test_taints_are_tolerated_as_the_api_says(toleration: dict[str, str], tolerates: bool) -> None:
    node = NodeView(name="a", taints=(Taint("team", "x", "NoSchedule"),))
    assert (untolerated_taint(node, [{"tolerations": [toleration]}]) is None) == tolerates


@pytest.mark.parametrize(
    "taint",
    [
        Taint("team", "", "PreferNoSchedule"),
        Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    ],
)
def test_some_taints_keep_nobody_away_for_long(taint: Taint) -> None:
    assert untolerated_taint(NodeView(name="a", taints=(taint,)), [{}]) is None


def test_only_pods_that_select_the_node_count() -> None:
    node = NodeView(name="a", labels={"kind": "x"}, taints=(Taint("team", "", "NoSchedule"),))
    assert untolerated_taint(node, [{"nodeSelector": {"kind": "y"}}]) is None
    assert untolerated_taint(node, [{"nodeSelector": {"kind": "x"}}]) is not None


def test_a_refused_object_is_reported_and_the_status_does_not_flap(world: World) -> None:
    world.settle()
    world.refusing = {"DaemonSet gpu/purser-gpu-feature-discovery-containerd": "exceeded quota"}
    world.change_policy({"gfd": {"version": "v9"}})
    world.run(5)
    told = world.condition("Degraded")
    assert (told["status"], told["reason"]) == ("True", "WriteRefused")
    assert told["message"] == "DaemonSet gpu/purser-gpu-feature-discovery-containerd: exceeded quota"
    before = world.status()
    for _ in range(5):
        world.round()
        world.tick()
        assert world.status() == before
    world.refusing = {}
    world.settle()
    assert world.condition("Degraded")["status"] == "False"


def test_a_refused_node_is_among_those_that_fail(world: World) -> None:
    world.refusing = {"Node a": "admission webhook labels.example denied the request"}
    world.run(5)
    assert failing(world) == [("a", "", "WriteRefused")]
    assert "denied the request" in world.status()["failingNodes"][0]["message"]
    before = world.status()
    world.round()
    assert world.status() == before
