"""What would be written is shown as people read it."""

from purser.operator.acting import DryWriter, perform
from purser.operator.model import (
    Apply,
    Delete,
    DeletePod,
    Evict,
    NodeView,
    NodeWorkload,
    ObjectKey,
    OperandPod,
    PatchNode,
    SetFinalizer,
    Snapshot,
    WriteStatus,
)
from purser.operator.policy import ClusterPolicyStatus

KEY = ObjectKey("v1", "ConfigMap", "n", "made")
LIVE = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "made", "namespace": "n"},
    "data": {"x": "old"},
}


async def shown(*actions, objects=None, nodes=(), policies=()):
    lines = []
    snapshot = Snapshot(now=0, namespace="n", purser_image="i", objects=objects or {}, nodes=nodes, policies=policies)
    await perform(actions, DryWriter(snapshot, lines.append))
    return "\n".join(lines)


async def test_a_changed_object_is_shown_with_what_changes():
    text = await shown(Apply({**LIVE, "data": {"x": "new"}}, "changed: data.x"), objects={KEY: LIVE})
    assert text.startswith("apply ConfigMap n/made: changed: data.x\n--- live/ConfigMap n/made")
    assert "-  x: old\n+  x: new" in text


async def test_a_new_object_is_shown_whole():
    text = await shown(Apply(LIVE, "created"))
    assert "--- /dev/null" in text
    assert "+kind: ConfigMap" in text


async def test_a_removed_object_is_shown_going():
    text = await shown(Delete(KEY, "u", "disabled"), objects={KEY: LIVE})
    assert text.startswith("delete ConfigMap n/made: disabled")
    assert "-  x: old" in text


async def test_of_a_node_only_what_changes_is_shown():
    node = NodeView(name="a", labels={"kept": "1", "gone": "2", "new": "0"})
    patch = PatchNode(node="a", labels={"gone": None, "new": "3"}, unschedulable=True, why="opened")
    text = await shown(patch, nodes=(node,))
    assert text.startswith("patch Node a: opened")
    assert "-  gone: '2'" in text
    assert "-  new: '0'" in text
    assert "+  new: '3'" in text
    assert "+unschedulable: true" in text
    assert "kept" not in text


async def test_pods_status_and_finalizers_are_named():
    pod = OperandPod(namespace="n", name="d", uid="u", node="a", operand="driver", daemon_set="x")
    workload = NodeWorkload(namespace="m", name="w", uid="u", node="a")
    policy = {"metadata": {"name": "p"}, "status": {"state": "notReady"}}
    text = await shown(
        DeletePod(pod, "outdated"),
        Evict(workload, "upgrade"),
        WriteStatus("p", ClusterPolicyStatus(state="ready")),
        SetFinalizer("p", "1", ()),
        policies=(policy,),
    )
    assert "delete Pod n/d on a: outdated\nevict Pod m/w from a: upgrade" in text
    assert "-state: notReady" in text
    assert "+state: ready" in text
    assert text.endswith("finalizers of ClusterPolicy p: none")


async def test_what_others_added_where_all_is_the_operators_is_shown_going():
    live = {**LIVE, "data": {"x": "new", "theirs": "y"}}
    text = await shown(Apply({**LIVE, "data": {"x": "new"}}, "drift: data.theirs"), objects={KEY: live})
    assert "-  theirs: 'y'" in text
