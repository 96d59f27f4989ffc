"""All actions of a round are tried, in order, until somebody else leads; what would be written is shown as people read
it."""

import asyncio

import pytest

from purser.kube import (
    AlreadyExistsError,
    ApiUnavailableError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from purser.operator.acting import MAX_CONCURRENT_WRITES, DryWriter, perform
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


def made(name):
    return Apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, "created")


def patches(count):
    return [PatchNode(node=f"n{number}", labels={"x": "y"}) for number in range(count)]


EVICT = Evict(NodeWorkload(namespace="n", name="w", uid="u", node="a"), "upgrade")


class Recorder:
    """Notes what is begun, and how much at once."""

    def __init__(self):
        self.begun = []
        self.at_once = self.most = 0

    async def do(self, action):
        self.begun.append(action)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1


async def test_objects_are_applied_one_by_one_and_nodes_side_by_side():
    objects, nodes = Recorder(), Recorder()
    await perform([made("a"), made("b"), made("c")], objects)
    await perform(patches(100), nodes)
    assert (objects.most, nodes.most) == (1, MAX_CONCURRENT_WRITES)
    assert len(nodes.begun) == 100


async def test_one_kind_of_actions_is_done_before_the_next_begins():
    writer = Recorder()
    actions = [made("a"), *patches(20), WriteStatus("p", ClusterPolicyStatus())]
    result = await perform(actions, writer)
    assert writer.begun == actions
    assert result.is_clean
    assert set(map(id, result.done)) == set(map(id, actions))


@pytest.mark.parametrize("error", [ServerError(500, "", "no"), LookupError("no such kind")], ids=str)
async def test_a_failure_keeps_nothing_else_from_being_done(error):
    first, *others = [made("a"), *patches(3)]
    writer = Recorder()
    writer.do = raising(writer.do, first, error)
    result = await perform([first, *others], writer)
    assert [each.action for each in result.failures] == [first]
    assert not result.failures[0].expected
    assert list(result.done) == others


@pytest.mark.parametrize(
    ("action", "error", "expected"),
    [
        (EVICT, TooManyRequestsError(429, "TooManyRequests", "budget"), True),
        (PatchNode(node="a"), NotFoundError(404, "NotFound", "gone"), True),
        (PatchNode(node="a"), ConflictError(409, "Conflict", "changed"), True),
        (made("a"), ConflictError(409, "Conflict", "changed"), True),
        (PatchNode(node="a"), ServerError(503, "", "down"), False),
        (PatchNode(node="a"), TooManyRequestsError(429, "TooManyRequests", "overload"), False),
        (made("a"), NotFoundError(404, "NotFound", "no namespace"), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_changing_world_brings_about_is_expected(action, error, expected):
    writer = Recorder()
    writer.do = raising(writer.do, action, error)
    result = await perform([action], writer)
    assert [each.expected for each in result.failures] == [expected]


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (ForbiddenError(403, "Forbidden", "PodSecurity"), True),
        (InvalidError(422, "Invalid", "spec.x"), True),
        (BadRequestError(400, "BadRequest", "a webhook says no"), True),
        (LookupError("no such kind"), True),
        (NotFoundError(404, "NotFound", "gone"), False),
        (ConflictError(409, "Conflict", "changed"), False),
        (AlreadyExistsError(409, "AlreadyExists", "there"), False),
        (TooManyRequestsError(429, "TooManyRequests", "overload"), False),
        (ServerError(503, "", "down"), False),
        (ApiUnavailableError("timeout"), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_permanent_and_transient_refusals_are_distinguished(error, permanent):
    writer = Recorder()
    writer.do = raising(writer.do, made("a"), error)
    [failure] = (await perform([made("a")], writer)).failures
    assert failure.permanent is permanent


async def test_nothing_is_written_once_another_leads():
    writer = Recorder()
    result = await perform([made("a"), made("b"), *patches(50)], writer, lambda: len(writer.begun) < 2)
    assert len(writer.begun) == 2
    assert result.stopped
    assert not result.is_clean


def raising(do, which, error):
    async def instead(action):
        if action == which:
            raise error
        await do(action)

    return instead


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
