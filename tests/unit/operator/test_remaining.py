"""What is waited for is said by sorts, the most telling first."""

from purser.operator.model import Delete, NodeView, ObjectKey, OperandPod, PatchNode, Snapshot
from purser.operator.names import FINALIZER
from purser.operator.uninstalling import remaining


def world(**fields):
    nodes = (NodeView(name="a"), NodeView(name="dead", ready=False))
    return Snapshot(now=0, namespace="n", purser_image="", nodes=nodes, **fields)


def pod(name, node):
    return OperandPod(namespace="n", name=name, uid=name, node=node, operand="driver", daemon_set="d")


def test_nothing_is_left():
    assert remaining(world(), (), ()) == []


def test_each_sort_has_a_line_and_of_many_the_first_are_named():
    driver = Delete(ObjectKey("apps/v1", "DaemonSet", "n", "driver"), "u", "")
    nodes = [PatchNode(node=f"n{number}") for number in range(7)]
    held = ["node a: pod default/train uses its GPU"]
    assert remaining(world(pods=(pod("driver-1", "a"),)), [driver, *nodes], held) == [
        "held back: node a: pod default/train uses its GPU",
        "objects: DaemonSet n/driver",
        "labels and annotations of nodes: n0, n1, n2 (and 4 more)",
        "pods of operands: n/driver-1 on a",
    ]


def test_pods_of_nodes_that_are_away_are_not_waited_for():
    assert remaining(world(pods=(pod("x", "dead"), pod("y", "deleted"))), (), ()) == []


def test_a_policy_that_somebody_else_keeps_is_named_with_the_finalizer():
    metadata = {"name": "p", "finalizers": [FINALIZER, "foreign.io/keep"]}
    lines = remaining(world(policies=({"metadata": metadata},)), (), ())
    assert lines == ["policies: ClusterPolicy p, kept by somebody else's finalizer foreign.io/keep"]
    assert remaining(world(policies=({"metadata": {"name": "p"}},)), (), ()) == ["policies: ClusterPolicy p"]
