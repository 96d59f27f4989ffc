"""Pods of nodes that are to be emptied: one watch for all of them, and none where there is nothing to empty."""

import pytest
from aiohttp import web
from tests.unit.operator.embedded import (
    IMAGE,
    NAMESPACE,
    create_node,
    create_pod,
    embedded,
    eventually,
    node,
    operand_pod,
    pod,
    running,
)

from purser.kube import Client, Informer
from purser.kube.resources import PODS
from purser.operator.observing import Observer, workloads

READER = "reader"


class Reads:
    """Lists and watches of all pods by the observer."""

    def __init__(self):
        self.lists = self.watches = 0
        self.by_node = []
        self.are_refused = False

    async def note(self, request):
        if request.headers.get("User-Agent") != READER or request.path != "/api/v1/pods":
            return None
        if "fieldSelector" in request.query:
            self.by_node.append(request.query["fieldSelector"])
        if "watch" in request.query:
            self.watches += 1
        else:
            self.lists += 1
        return web.json_response({"code": 403, "message": "no"}, status=403) if self.are_refused else None


@pytest.fixture
async def cluster(tmp_path):
    async with embedded(tmp_path) as found:
        found.reads = Reads()
        found.server.intercept(found.reads.note)
        for name in ("a", "b"):
            await create_node(found.client, node(name))
            await create_pod(found.client, pod(f"on-{name}", name))
            await create_pod(found.client, operand_pod(f"driver-{name}", name, "driver"))
        yield found


@pytest.fixture
async def observer(cluster):
    async with Client(cluster.config, user_agent=READER) as client:
        observer = Observer(client, NAMESPACE, IMAGE, policies_may_be_unknown=True)
        with running(observer.run()):
            await observer.ready()
            yield observer


async def names(observer, *nodes):
    seen = await observer.snapshot(lambda snapshot: nodes)
    return {node: [each.name for each in found] for node, found in seen.workloads.items()}


async def test_other_pods_are_read_of_the_named_nodes_only(observer):
    assert await names(observer, "a") == {"a": ["on-a"]}
    assert await names(observer, "a", "b") == {"a": ["on-a"], "b": ["on-b"]}
    assert await names(observer) == {}


async def test_the_nodes_are_named_by_what_there_is(observer):
    seen = await observer.snapshot(lambda snapshot: {each.name for each in snapshot.nodes})
    assert set(seen.workloads) == {"a", "b"}


async def test_many_rounds_and_nodes_are_one_list_and_one_watch(cluster, observer):
    for _ in range(20):
        await names(observer, "a", "b")
    assert (cluster.reads.lists, cluster.reads.by_node) == (1, [])
    assert cluster.reads.watches <= 1


async def test_nobody_follows_pods_where_no_node_is_looked_into(cluster, observer):
    assert cluster.reads.lists == 0
    await names(observer, "a")
    await names(observer)
    await eventually(lambda: not observer._workloads._by_node)
    await create_pod(cluster.client, pod("late", "a"))
    assert cluster.reads.lists == 1
    assert await names(observer, "a") == {"a": ["late", "on-a"]}


async def test_a_node_that_is_asked_for_again_at_once_is_known_again(observer):
    for _ in range(20):
        await names(observer, "a")
        await names(observer)
    assert await names(observer, "b") == {"b": ["on-b"]}


async def test_a_node_that_is_new_is_known_from_a_list_made_since(cluster, observer, monkeypatch):
    """A watch may be behind: the pod that came just before the node's cordon must not be missed."""
    await names(observer, "a")
    monkeypatch.setattr(Informer, "_apply", lambda self, event: None)
    await create_pod(cluster.client, pod("late", "b"))
    assert await names(observer, "a", "b") == {"a": ["on-a"], "b": ["late", "on-b"]}


async def test_a_pod_that_goes_from_a_named_node_is_reason_for_a_round(cluster, observer):
    await names(observer, "a")
    changes = []
    observer.on_change(lambda: changes.append(1))
    await cluster.client.delete(PODS, "on-b", "default", grace_period_seconds=0)
    await cluster.client.delete(PODS, "on-a", "default", grace_period_seconds=0)
    await eventually(lambda: changes)

    async def gone():
        return await names(observer, "a") == {"a": []}

    await eventually(gone)
    assert len(changes) == 1, "the pod of the other node is none"


async def test_a_pod_that_comes_or_becomes_ready_is_seen(cluster, observer):
    await names(observer, "a")
    changes = []
    observer.on_change(lambda: changes.append(1))
    await create_pod(cluster.client, pod("late", "a"))
    await eventually(lambda: changes)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.client.patch_merge(PODS, "late", {"status": ready}, "default", subresource="status")

    async def seen():
        found = (await observer.snapshot(lambda snapshot: ("a",))).workloads["a"]
        return [each.name for each in found if each.ready] == ["late"]

    await eventually(seen)


async def test_pods_that_cannot_be_listed_fail_no_round_and_bring_one_when_they_can(cluster, observer, monkeypatch):
    monkeypatch.setattr(workloads, "POD_LIST_TIMEOUT_S", 0.05)
    cluster.reads.are_refused = True
    changes = []
    observer.on_change(lambda: changes.append(1))
    seen = await observer.snapshot(lambda snapshot: ("a",))
    assert (seen.workloads, len(seen.nodes)) == ({}, 2)
    cluster.reads.are_refused = False
    await eventually(lambda: changes)
    assert await names(observer, "a") == {"a": ["on-a"]}
