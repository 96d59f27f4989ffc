"""Uninstalling leaves nothing behind, with and without an operator that runs; what is waited for is said by sorts, the
most telling first."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from tests.tiers import IS_LONG
from tests.unit.operator.embedded import NAMESPACE, create_node, create_pod, eventually, node, pod, running
from tests.unit.operator.embedded_cluster import POLICY, SMALL, rounds, stack

from purser.core.names import INVENTORY_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu
from purser.kube import NotFoundError
from purser.kube.resources import LEASES, NAMESPACES, NODES, PODS
from purser.operator import uninstalling
from purser.operator.manifests.objects import OWNED_KINDS
from purser.operator.model import Delete, NodeView, ObjectKey, OperandPod, PatchNode, Snapshot
from purser.operator.names import (
    FIELD_MANAGER,
    FINALIZER,
    LEASE,
    MANAGED_BY_LABEL,
    OPERAND_LABEL,
)
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.previewing import preview_uninstall
from purser.operator.uninstalling import UninstallError, remaining, uninstall

pytestmark = pytest.mark.usefixtures("quiet")

OURS = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"


@pytest.fixture
async def installed(tmp_path, request):
    """A cluster of two nodes with the stack on it; for tests of the fast tier of one node, with less on it."""
    is_large = IS_LONG or request.node.get_closest_marker("gate") is not None
    names = ("n0", "n1") if is_large else ("n0",)
    async with stack(tmp_path, nodes=len(names)) as found:
        found.before = {name: await meta(found, name) for name in names}
        facts = encode(NodeFacts(gpus=(PciGpu("2330"),)))
        written = {NODE_FACTS_ANNOTATION: facts, INVENTORY_ANNOTATION: "{}"}
        await found.client.patch_merge(NODES, "n0", {"metadata": {"annotations": written}})
        for name in names:  # n1's are no agent's, which tells of itself by its annotations
            await list_amounts(found, name)
        await found.client.create(CLUSTER_POLICIES, POLICY if is_large else POLICY | {"spec": SMALL})
        yield found


CHARTS_AGENT = {"app.kubernetes.io/name": "purser", "app.kubernetes.io/component": "agent"}


async def write_inventory(stack):
    await stack.client.patch_merge(NODES, "n0", {"metadata": {"annotations": {INVENTORY_ANNOTATION: "{}"}}})


async def list_amounts(stack, name):
    amounts = {"nvidia.com/gpumem": "81920", "volcano.sh/gpu-memory": "81920"}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    await stack.client.patch_merge(NODES, name, status, subresource="status")


async def amounts_of(stack, name):
    status = (await stack.client.get(NODES, name)).status
    return [key for key in (*status.capacity, *status.allocatable) if key.endswith(("mem", "-memory"))]


async def meta(stack, name):
    found = await stack.client.get(NODES, name)
    return found.metadata.labels, found.metadata.annotations


async def remove(stack, **options):
    said = []
    async with asyncio.timeout(60):
        await uninstall(stack.cluster.config, NAMESPACE, say=said.append, **options)
    return said


async def assert_nothing_is_left(stack):
    for resource in OWNED_KINDS:
        listed = await stack.client.list(resource, NAMESPACE if resource.namespaced else None, label_selector=OURS)
        assert listed.items == [], resource.plural
    for name, before in stack.before.items():
        assert await meta(stack, name) == before

    async def no_pods():
        return not (await stack.client.list(PODS, NAMESPACE, label_selector=OPERAND_LABEL)).items

    await eventually(no_pods)


async def test_a_running_operator_cleans_up_and_from_another_namespace_that_one_is_named(installed):
    await installed.client.create(NAMESPACES, {"metadata": {"name": "theirs"}})
    async with installed.operator() as port:
        await installed.settled(port)
        installed.cluster.writes.clear()
        with pytest.raises(UninstallError, match=f"purser operator uninstall --namespace {NAMESPACE}"):
            await uninstall(installed.cluster.config, "theirs", say=print)
        assert installed.cluster.writes == []
        assert await remove(installed) == ["ClusterPolicy policy: deletion requested"]
        await assert_nothing_is_left(installed)
        installed.cluster.writes.clear()
        made = await rounds(port)
        await create_node(installed.client, node("late"))
        await eventually(lambda: _more(port, made))
        assert installed.cluster.writes == [], "the operator stays, and has nothing to do"
    assert (await installed.client.list(CLUSTER_POLICIES)).items == []


async def _more(port, made):
    return await rounds(port) > made


@pytest.mark.gate
async def test_from_a_namespace_that_is_not_there_nothing_is_removed(installed):
    """Where the lease cannot be, nobody could be asked to clean up."""
    with pytest.raises(UninstallError, match="namespace nowhere does not exist"):
        await uninstall(installed.cluster.config, "nowhere", say=print)
    assert (await installed.policy())["metadata"].get("deletionTimestamp") is None


@pytest.mark.gate
async def test_the_definition_goes_when_it_is_asked_for(installed):
    async with installed.operator():
        await installed.ready()
    said = await remove(installed, definition=True)
    assert said[-1] == "CustomResourceDefinition clusterpolicies.purser.dev was removed"
    with pytest.raises(NotFoundError):
        await installed.client.get(DEFINITIONS, "clusterpolicies.purser.dev")


@pytest.mark.gate
async def test_where_nothing_is_installed_nothing_is_done(tmp_path):
    """An agent that the chart installed without an operator keeps its inventory."""
    async with stack(tmp_path) as empty:
        await write_inventory(empty)
        await create_pod(empty.client, pod("purser-agent-x", "n0", **CHARTS_AGENT))
        await empty.client.delete(DEFINITIONS, "clusterpolicies.purser.dev")
        await uninstall(empty.cluster.config, NAMESPACE, timeout_s=20, say=lambda text: None, definition=True)
        assert [each for each in empty.cluster.writes if "customresourcedefinitions" not in each] == []
        assert await preview_uninstall(empty.client, NAMESPACE, print) == 0


@pytest.mark.gate
async def test_what_agents_wrote_goes_after_a_policy_that_was_deleted_by_hand(installed):
    """The agents went with it, and nobody but this command takes away what they wrote."""
    async with installed.operator():
        await installed.ready()
        await installed.client.delete(CLUSTER_POLICIES, "policy")

        async def no_pods():
            return not (await installed.client.list(PODS, NAMESPACE, label_selector=OPERAND_LABEL)).items

        await eventually(no_pods)
        lines = []
        await preview_uninstall(installed.client, NAMESPACE, lines.append)
        amounts = "nvidia.com/gpumem, volcano.sh/gpu-memory"
        assert f"patch Node n0: remove what agents wrote: purser.dev/inventory, {amounts}" in lines
        assert await remove(installed) == []
        await assert_nothing_is_left(installed)
        assert await amounts_of(installed, "n0") == []
        assert len(await amounts_of(installed, "n1")) == 4


@pytest.mark.gate
async def test_nodes_are_looked_at_once_more_before_nothing_is_left(tmp_path):
    async with stack(tmp_path) as found:
        found.before = {"n0": await meta(found, "n0")}
        await write_inventory(found)
        writes = []

        async def write_again(request):
            if request.path == "/api/v1/nodes" and "watch" not in request.query and len(writes) == 1:
                writes.append("an agent's")
                await write_inventory(found)
            elif request.method == "PATCH" and request.headers["User-Agent"] != "tests":
                writes.append("ours")
            return

        found.cluster.server.intercept(write_again)
        await remove(found)
        await assert_nothing_is_left(found)
        assert (await found.client.list(LEASES, NAMESPACE)).items == []
        assert writes == ["ours", "an agent's", "ours"]


@pytest.mark.gate
async def test_without_an_operator_the_command_cleans_up_itself_and_can_be_broken_off_anywhere(installed):
    """Broken off after each write in turn."""
    async with installed.operator():
        await installed.ready()
    await remove_step_by_step(installed)
    await assert_nothing_is_left(installed)
    assert (await installed.client.list(CLUSTER_POLICIES)).items == []
    with pytest.raises(NotFoundError):
        await installed.client.get(LEASES, LEASE, NAMESPACE)


async def remove_step_by_step(stack):
    while True:
        stack.cluster.writes.clear()
        work = asyncio.create_task(remove(stack))
        await eventually(lambda work=work: work.done() or stack.cluster.writes)
        if work.done() and not work.cancelled():
            work.result()
            return
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@pytest.mark.gate
async def test_what_is_waited_for_is_reported(installed, monkeypatch):
    monkeypatch.setattr(uninstalling, "UNINSTALL_MESSAGE_PERIOD_S", 0.0)
    monkeypatch.setattr(uninstalling, "UNINSTALL_POLL_PERIOD_S", 0.02)
    looks = []
    monkeypatch.setattr(uninstalling, "remaining", lambda *what: looks.append(what) or remaining(*what))
    async with installed.operator():
        await installed.ready()
    await installed.client.patch_merge(CLUSTER_POLICIES, "policy", {"metadata": {"finalizers": ["foreign.io/keep"]}})
    said = []

    async def wanted():
        return [
            line for line in said if line.startswith("waiting for policies: ClusterPolicy policy (deletion blocked by")
        ]

    with running(uninstall(installed.cluster.config, NAMESPACE, say=said.append)):
        await eventually(wanted)
        looks.clear()
        await eventually(lambda: len(looks) > 2)
        assert len(await wanted()) == 1, "nothing is said twice in a row"


@pytest.mark.gate
@pytest.mark.parametrize("runs", [True, False], ids=["an operator runs", "no operator runs"])
async def test_a_pod_that_uses_a_gpu_is_waited_for_named_and_not_ended(installed, runs, monkeypatch):
    monkeypatch.setattr(uninstalling, "UNINSTALL_MESSAGE_PERIOD_S", 0.1)
    said = []
    async with AsyncExitStack() as operators:
        async with installed.operator("first"):
            await installed.ready()
        train = pod("train", "n0")
        train["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        await create_pod(installed.client, train)
        if runs:
            await operators.enter_async_context(installed.operator("second"))
        with running(uninstall(installed.cluster.config, NAMESPACE, say=said.append)) as removing:
            await eventually(lambda: [line for line in said if "node n0: pod default/train still uses" in line])

            async def others_left():
                listed = await installed.client.list(PODS, NAMESPACE, label_selector=OPERAND_LABEL)
                there = {(each.spec.node_name, each.metadata.labels[OPERAND_LABEL]) for each in listed.items}
                assert ("n0", "driver") in there
                return there == {("n0", "driver")}

            await eventually(others_left)
            assert not removing.done()
            await installed.client.delete(PODS, "train", "default", grace_period_seconds=0)
            async with asyncio.timeout(60):
                await removing
        await assert_nothing_is_left(installed)


@pytest.mark.gate
async def test_what_is_refused_is_reported_with_the_servers_message(installed, monkeypatch):
    monkeypatch.setattr(uninstalling, "UNINSTALL_POLL_PERIOD_S", 0.02)
    async with installed.operator():
        await installed.ready()

    tries = []

    async def refuse(request):
        if request.method == "PATCH" and request.path == "/api/v1/nodes/n0":
            tries.append(request.path)
            return web.json_response({"code": 403, "reason": "Forbidden", "message": "hands off"}, status=403)
        return None

    installed.cluster.server.intercept(refuse)
    said, refused = [], "refused: Node n0: hands off (403 Forbidden)"
    with running(uninstall(installed.cluster.config, NAMESPACE, say=said.append)):
        await eventually(lambda: refused in said)
        tries.clear()
        await eventually(lambda: len(tries) > 2)  # the first two were answered, and what was said of them
    assert said.count(refused) == 1


def seen(**fields):
    nodes = (NodeView(name="a"), NodeView(name="dead", ready=False))
    return Snapshot(now=0, namespace="n", purser_image="", nodes=nodes, **fields)


def operand_pod(name, node):
    return OperandPod(namespace="n", name=name, uid=name, node=node, operand="driver", daemon_set="d")


def test_nothing_is_left():
    assert remaining(seen(), (), ()) == []


def test_each_sort_has_a_line_and_of_many_the_first_are_named():
    driver = Delete(ObjectKey("apps/v1", "DaemonSet", "n", "driver"), "u", "")
    nodes = [PatchNode(node=f"n{number}") for number in range(7)]
    held = ["node a: pod default/train still uses a GPU"]
    assert remaining(seen(pods=(operand_pod("driver-1", "a"),)), [driver, *nodes], held) == [
        "nodes that block the removal: node a: pod default/train still uses a GPU",
        "objects: DaemonSet n/driver",
        "labels and annotations on nodes: n0, n1, n2 (and 4 more)",
        "operand pods: n/driver-1 on a",
    ]


def test_pods_of_nodes_that_are_away_are_not_waited_for():
    assert remaining(seen(pods=(operand_pod("x", "dead"), operand_pod("y", "deleted"))), (), ()) == []


def test_a_policy_that_others_keep_is_named_with_the_finalizer():
    metadata = {"name": "p", "finalizers": [FINALIZER, "foreign.io/keep"]}
    lines = remaining(seen(policies=({"metadata": metadata},)), (), ())
    assert lines == ["policies: ClusterPolicy p (deletion blocked by other finalizers: foreign.io/keep)"]
    assert remaining(seen(policies=({"metadata": {"name": "p"}},)), (), ()) == ["policies: ClusterPolicy p"]
