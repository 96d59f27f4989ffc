"""What a round sees, and when there is reason for one."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.tiers import IS_LONG
from tests.unit.operator.embedded import (
    IMAGE,
    NAMESPACE,
    create_node,
    create_pod,
    definition,
    embedded,
    eventually,
    node,
    operand_pod,
    pod,
    running,
)

from purser.kube import Client, KubeError, NotFoundError
from purser.kube.objects import Identified, ObjectMeta
from purser.kube.resources import CONFIG_MAPS, NODES, PODS
from purser.operator.model import Apply, Delete, DeletePod, ObjectKey, OperandPod, PatchNode
from purser.operator.names import FIELD_MANAGER, MANAGED_BY_LABEL
from purser.operator.observing import Observer, kinds
from purser.operator.observing import observer as module
from purser.operator.observing.expectations import at_least
from purser.operator.observing.kinds import DEFINITIONS, RIVALS, is_served
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.writing import KubeWriter

GENERATION = {"metadata": {"name": "p"}, "spec": {"driver": {"version": "1"}}}


def config_map(name="made", **data):
    labels = {MANAGED_BY_LABEL: FIELD_MANAGER}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@asynccontextmanager
async def observing(cluster, *, is_ready=True, user_agent="purser"):
    """An observer at work; ``is_ready``: from when it has seen all."""
    async with Client(cluster.config, user_agent=user_agent) as client:
        observer = Observer(client, NAMESPACE, IMAGE)
        with running(observer.run()):
            if is_ready:
                async with asyncio.timeout(60):
                    await observer.ready()
            yield observer


@pytest.fixture
async def observer(cluster):
    async with observing(cluster) as found:
        yield found


def nothing(snapshot):
    return ()


async def test_a_snapshot_has_policies_nodes_operands_owned_objects_and_budgets(cluster, observer):
    client = cluster.client
    await client.create(CLUSTER_POLICIES, GENERATION)
    await create_node(client, node("a"))
    await create_pod(client, operand_pod("driver-a", "a", "driver"))
    await create_pod(client, pod("somebodys", "a"))
    await client.create(CONFIG_MAPS, config_map())
    await client.create(CONFIG_MAPS, {"metadata": {"name": "foreign", "namespace": NAMESPACE}})

    async def complete():
        seen = await observer.snapshot(nothing)
        return seen if seen.policies and seen.nodes and seen.pods and seen.objects else None

    seen = await eventually(complete)
    assert [each["metadata"]["name"] for each in seen.policies] == ["p"]
    assert seen.policies[0]["kind"] == "ClusterPolicy"
    assert [(each.name, each.runtime) for each in seen.nodes] == [("a", "containerd://1.7.22")]
    assert [(each.name, each.operand, each.node) for each in seen.pods] == [("driver-a", "driver", "a")]
    assert list(seen.objects) == [ObjectKey("v1", "ConfigMap", NAMESPACE, "made")]
    assert (seen.namespace, seen.purser_image, seen.service_monitors) == (NAMESPACE, IMAGE, False)
    assert cluster.writes == []


async def test_of_a_users_config_map_a_round_sees_the_keys(cluster, observer):
    """The driver mounts each by itself. What stands in them changes nothing that a round could see."""
    theirs = {"metadata": {"name": "modules", "namespace": NAMESPACE}, "data": {"nvidia.conf": "a", "b.conf": ""}}
    await cluster.client.create(CONFIG_MAPS, theirs)

    async def keys():
        return (await observer.snapshot(nothing)).config_keys.get("modules")

    assert await eventually(keys) == ("b.conf", "nvidia.conf")
    assert not (await observer.snapshot(nothing)).foreign
    changes = []
    observer.on_change(lambda: changes.append(1))
    store = observer._owned[module.CONFIG_MAPS].store
    await cluster.client.patch_merge(CONFIG_MAPS, "modules", {"data": {"b.conf": "x"}}, NAMESPACE)
    await eventually(lambda: store[f"{NAMESPACE}/modules"]["data"]["b.conf"] == "x")
    assert changes == []
    await cluster.client.patch_merge(CONFIG_MAPS, "modules", {"data": {"c.conf": ""}}, NAMESPACE)
    await eventually(lambda: changes)
    assert await keys() == ("b.conf", "c.conf", "nvidia.conf")


@pytest.mark.parametrize(("served", "takes"), [((True, False), True), ((True, True), False), ((False, False), False)])
async def test_node_feature_discovery_takes_objects_where_it_knows_them_but_not_on_openshift(
    monkeypatch, served, takes
):
    async def answers(_, resource):
        return served[resource.group == "config.openshift.io"]

    monkeypatch.setattr(kinds, "is_served", answers)
    assert await kinds.is_node_feature_api_used(None) is takes


async def test_a_heartbeat_of_a_node_is_no_reason_for_a_round_but_a_label_is(cluster, observer):
    await create_node(cluster.client, node("a"))
    await eventually(lambda: observer._nodes.store.get("a"))
    changes = []
    observer.on_change(lambda: changes.append(1))
    beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    written = await cluster.client.patch_merge(NODES, "a", {"status": {"conditions": [beat]}}, subresource="status")
    version = written.metadata.resource_version
    await eventually(lambda: observer._nodes.store["a"].metadata.resource_version == version)
    assert changes == []
    await cluster.client.patch_merge(NODES, "a", {"metadata": {"labels": {"x": "y"}}})
    await eventually(lambda: changes)


async def test_a_snapshot_shows_the_effects_of_the_writes_before_it(cluster, observer):
    """Many times, because a watch that happens to be fast would show them anyway."""
    await create_node(cluster.client, node("a"))
    writer = KubeWriter(observer._client, observer)
    for number in range(50 if IS_LONG else 15):
        await writer.do(PatchNode(node="a", labels={"n": str(number)}))
        await writer.do(Apply(config_map(n=str(number)), "changed"))
        seen = await observer.snapshot(nothing)
        assert seen.nodes[0].labels["n"] == str(number)
        [(key, obj)] = seen.objects.items()
        assert obj["data"] == {"n": str(number)}
        assert seen.settled[key].came_out["data"] == {"n": str(number)}


async def test_a_snapshot_shows_that_what_was_deleted_is_gone_or_going(cluster, observer):
    await create_node(cluster.client, node("a"))
    writer = KubeWriter(observer._client, observer)
    for number in range(20 if IS_LONG else 5):
        await writer.do(Apply(config_map(), "created"))
        [(key, obj)] = (await observer.snapshot(nothing)).objects.items()
        await writer.do(Delete(key, obj["metadata"]["uid"], "not wanted"))
        assert (await observer.snapshot(nothing)).objects == {}
        await create_pod(cluster.client, operand_pod(f"d{number}", "a", "driver"))
        made = await cluster.client.get(PODS, f"d{number}", NAMESPACE)
        view = OperandPod(
            namespace=NAMESPACE, name=f"d{number}", uid=made.metadata.uid, node="a", operand="driver", daemon_set=""
        )
        await eventually(lambda name=f"{NAMESPACE}/d{number}": observer._pods.store.get(name))
        await writer.do(DeletePod(view, "outdated"))
        assert all(each.terminating for each in (await observer.snapshot(nothing)).pods)


async def test_what_is_not_seen_in_time_is_listed_again(cluster, observer, monkeypatch):
    monkeypatch.setattr(module, "WRITE_EFFECT_TIMEOUT_S", 0.05)
    await create_node(cluster.client, node("a"))
    await eventually(lambda: observer._nodes.store.get("a"))
    observer._nodes._apply = lambda event: None  # a watch that says nothing any more
    await KubeWriter(observer._client, observer).do(PatchNode(node="a", labels={"x": "y"}))
    assert (await observer.snapshot(nothing)).nodes[0].labels["x"] == "y"
    observer.expect(NODES, "a", lambda known: False)
    assert await observer.snapshot(nothing), "what never comes does not hold rounds up for ever"


async def test_another_operators_policy_of_the_same_name_does_not_answer_for_ours(cluster, observer, monkeypatch):
    """Both call their kind ``clusterpolicies``, and `purser operator import` keeps the name."""
    monkeypatch.setattr(module, "WRITE_EFFECT_TIMEOUT_S", 0.05)
    await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": "cluster-policy"}, "spec": {}})
    await eventually(lambda: observer._policies.store.get("cluster-policy"))
    observer._policies._apply = lambda event: None  # a watch that says nothing any more
    labels = {"metadata": {"labels": {"x": "y"}}}
    written = await cluster.client.patch_merge(CLUSTER_POLICIES, "cluster-policy", labels)
    observer.expect(CLUSTER_POLICIES, "cluster-policy", at_least(written["metadata"]["resourceVersion"]))
    observer._rivals._upsert(
        Identified(metadata=ObjectMeta(name="cluster-policy", uid="theirs", resource_version="9999999"))
    )
    assert (await observer.snapshot(nothing)).policies[0]["metadata"]["labels"] == {"x": "y"}


async def test_what_another_leader_wrote_is_seen_after_a_refresh(cluster, observer):
    await create_node(cluster.client, node("a"))
    await eventually(lambda: observer._nodes.store.get("a"))
    observer._nodes._apply = lambda event: None
    await cluster.client.patch_merge(NODES, "a", {"metadata": {"labels": {"x": "y"}}})
    await observer.refresh()
    assert (await observer.snapshot(nothing)).nodes[0].labels["x"] == "y"


async def test_monitors_are_followed_from_when_their_definitions_are_installed(cluster, monkeypatch):
    monkeypatch.setattr(kinds, "KIND_POLL_PERIOD_S", 0.05)
    async with observing(cluster) as observer:
        assert not (await observer.snapshot(nothing)).service_monitors
        monitors = definition("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", "Namespaced")
        await cluster.client.create(DEFINITIONS, monitors)

        async def served():
            return (await observer.snapshot(nothing)).service_monitors

        await eventually(served)


async def test_another_operators_policies_are_seen_from_when_they_can_be_there(cluster, monkeypatch):
    monkeypatch.setattr(kinds, "KIND_POLL_PERIOD_S", 0.05)
    rivals = definition("nvidia.com", "clusterpolicies", "ClusterPolicy", "Cluster")
    async with observing(cluster) as observer:
        assert (await observer.snapshot(nothing)).rivals == ()
        await cluster.client.create(DEFINITIONS, rivals)
        await eventually(lambda: RIVALS in observer._served)
        await cluster.client.create(RIVALS.raw(), {"metadata": {"name": "cluster-policy"}, "spec": {}})

        async def seen():
            return (await observer.snapshot(nothing)).rivals

        assert await eventually(seen) == ("cluster-policy",)
        await cluster.client.delete(DEFINITIONS, rivals["metadata"]["name"])
        await eventually(lambda: RIVALS not in observer._served)
        assert await seen() == ()


async def test_an_operator_that_starts_beside_another_knows_it_before_its_first_round(cluster):
    rivals = definition("nvidia.com", "clusterpolicies", "ClusterPolicy", "Cluster")
    await cluster.client.create(DEFINITIONS, rivals)
    await eventually(lambda: is_served(cluster.client, RIVALS))
    await cluster.client.create(RIVALS.raw(), {"metadata": {"name": "cluster-policy"}, "spec": {}})
    async with observing(cluster) as observer:
        assert (await observer.snapshot(nothing)).rivals == ("cluster-policy",)


async def test_a_kind_that_is_served_but_not_listed_is_missing_until_it_is_or_is_not_served(cluster, monkeypatch):
    """Rights may lack: beside another operator that it may not see, the operator does nothing."""
    monkeypatch.setattr(kinds, "KIND_POLL_PERIOD_S", 0.05)
    rivals = definition("nvidia.com", "clusterpolicies", "ClusterPolicy", "Cluster")
    await cluster.client.create(DEFINITIONS, rivals)
    await eventually(lambda: is_served(cluster.client, RIVALS))

    looks = []

    async def refuse(request):
        looks.append(request.path)
        if request.path == "/apis/nvidia.com/v1/clusterpolicies":
            return web.json_response({"code": 403, "message": "no"}, status=403)
        return None

    cluster.server.intercept(refuse)
    async with observing(cluster, is_ready=False) as observer:
        await eventually(lambda: observer.missing == ["clusterpolicies.nvidia.com (no (403))"])
        looks.clear()
        await eventually(lambda: looks.count("/apis/nvidia.com/v1") > 1)
        assert observer.missing
        await cluster.client.delete(DEFINITIONS, rivals["metadata"]["name"])
        async with asyncio.timeout(60):
            await observer.ready()


async def test_how_an_apply_came_out_is_forgotten_with_the_object(cluster, observer):
    writer = KubeWriter(observer._client, observer)
    await writer.do(Apply(config_map(), "created"))
    await observer.snapshot(nothing)
    assert len(observer.settled) == 1
    await cluster.client.delete(CONFIG_MAPS, "made", NAMESPACE)
    await eventually(lambda: not observer.settled)


async def test_without_the_definition_of_policies_nothing_is_ready(tmp_path):
    """A server that says 404 once must not look like a cluster whose policies were all deleted."""
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        observer = Observer(client, NAMESPACE, IMAGE)
        with running(observer.run()):
            await eventually(lambda: observer._nodes.health.synced)
            told = "the CustomResourceDefinition of ClusterPolicy does not exist: run purser operator crd --apply"
            await eventually(lambda: observer.missing == [f"clusterpolicies.purser.dev ({told})"])
        with pytest.raises(NotFoundError):
            await client.list(CLUSTER_POLICIES)


async def test_when_uninstalling_a_missing_definition_means_no_policies(tmp_path):
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        observer = Observer(client, NAMESPACE, "", policies_may_be_unknown=True)
        with running(observer.run()):
            async with asyncio.timeout(60):
                await observer.ready()
            seen = await observer.snapshot(nothing)
            assert (seen.policies, seen.defined) == ((), False)


async def test_what_the_server_does_not_let_be_listed_is_reported_at_once_to_who_asks(cluster):
    async def refuse(request):
        if request.path == "/api/v1/nodes" and request.headers.get("User-Agent") == "no-admin":
            status = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "nodes is forbidden"}
            return web.json_response(status, status=403)
        return None

    cluster.server.intercept(refuse)
    async with observing(cluster, is_ready=False, user_agent="no-admin") as observer:
        async with asyncio.timeout(60):
            with pytest.raises(KubeError, match="nodes is forbidden") as refused:
                await observer.ready_or_refused()
        assert cluster.config.server in str(refused.value)
        assert [each for each in observer.missing if each.startswith("nodes (nodes is forbidden")]
