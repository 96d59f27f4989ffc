"""Each action is one write, and says what it came to."""

import pytest
from aiohttp import web
from tests.unit.operator.embedded import (
    NAMESPACE,
    create_node,
    create_pod,
    node,
    operand_pod,
    pod,
)

from purser.core.names import CORDONED_BY_ANNOTATION
from purser.kube import Client, ConflictError, InvalidError, NotFoundError, TooManyRequestsError, untyped_resource
from purser.kube.resources import CONFIG_MAPS, NODES, PODS
from purser.operator.model import (
    Adopt,
    Apply,
    Delete,
    DeletePod,
    Evict,
    NodeWorkload,
    ObjectKey,
    OperandPod,
    PatchNode,
    SetFinalizer,
    WriteStatus,
)
from purser.operator.names import APPLIED_HASH_ANNOTATION
from purser.operator.policy import CLUSTER_POLICIES, ClusterPolicyStatus
from purser.operator.policy.spec import NodeCounts
from purser.operator.writing import KubeWriter

RAW_NODES = NODES.raw()
SERVICES = untyped_resource("", "v1", "services", "Service")
BUDGETS = untyped_resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


class Notes:
    policy_version = "v1"

    def __init__(self):
        self.settled = {}
        self.expected = []

    def applied(self, key, settled):
        self.settled[key] = settled

    def expect(self, resource, key, check):
        self.expected.append((resource.plural, key))


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
async def writer(cluster, notes):
    async with Client(cluster.config, field_manager="purser-operator") as client:
        yield KubeWriter(client, notes)


def config_map(data, applied_hash="h1", namespace=NAMESPACE):
    metadata = {"name": "made", "namespace": namespace, "annotations": {APPLIED_HASH_ANNOTATION: applied_hash}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_an_object_is_applied_over_other_hands_and_remembered_as_it_came_out(cluster, writer, notes):
    theirs = config_map({"x": "foreign"})
    theirs["metadata"]["labels"] = {"theirs": "stays"}
    await cluster.client.create(CONFIG_MAPS, theirs)
    await writer.do(Apply(config_map({"x": "ours"}), "drift"))
    [(key, settled)] = notes.settled.items()
    assert key == ObjectKey("v1", "ConfigMap", NAMESPACE, "made")
    assert (settled.wanted_hash, settled.came_out["data"]) == ("h1", {"x": "ours"})
    assert settled.came_out["metadata"]["labels"] == {"theirs": "stays"}
    assert notes.expected == [("configmaps", f"{NAMESPACE}/made")]
    assert len(cluster.writes) == 1


async def test_what_others_added_where_all_is_the_operators_goes_by_a_second_write(cluster, writer, notes):
    await cluster.client.create(CONFIG_MAPS, config_map({"x": "ours", "theirs": "goes"}))
    await writer.do(Apply(config_map({"x": "ours"}), "drift: data.theirs"))
    found = await cluster.client.get(CONFIG_MAPS.raw(), "made", NAMESPACE)
    [settled] = notes.settled.values()
    assert (found["data"], settled.came_out) == ({"x": "ours"}, found)
    assert len(cluster.writes) == 2


async def test_a_field_that_is_no_longer_wanted_goes(cluster, writer):
    await writer.do(Apply(config_map({"x": "1", "y": "2"}), "created"))
    await writer.do(Apply(config_map({"x": "1"}, "h2"), "changed"))
    assert (await cluster.client.get(CONFIG_MAPS, "made", NAMESPACE)).data == {"x": "1"}


@pytest.fixture
async def owner(cluster):
    """References to owners that are there: by those that are not, the garbage collector takes an object away."""
    made = {"theirs": await cluster.client.create(CONFIG_MAPS.raw(), config_map({}) | {"metadata": named("theirs")})}
    for name in ("former", "p"):
        made[name] = await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": name}, "spec": {}})
    return {
        name: {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": name, "uid": obj["metadata"]["uid"]}
        for name, obj in made.items()
    }


def named(name):
    return {"name": name, "namespace": NAMESPACE}


def owners(obj):
    return {each["name"] for each in obj["metadata"]["ownerReferences"]}


async def test_an_object_that_is_adopted_changes_its_policy_and_keeps_its_other_owners(cluster, writer, notes, owner):
    theirs = config_map({"x": "1"})
    theirs["metadata"]["ownerReferences"] = [owner["theirs"], owner["former"]]
    uid = (await cluster.client.create(CONFIG_MAPS, theirs)).metadata.uid
    key = ObjectKey("v1", "ConfigMap", NAMESPACE, "made")
    with pytest.raises(ConflictError):
        await writer.do(Adopt(key, "another", owner["p"]))
    await writer.do(Adopt(key, uid, owner["p"]))
    found = await cluster.client.get(CONFIG_MAPS.raw(), "made", NAMESPACE)
    assert (owners(found), found["data"]) == ({"theirs", "p"}, {"x": "1"})
    assert notes.expected == [("configmaps", f"{NAMESPACE}/made")]


def service(ports):
    spec = {"selector": {"app": "x"}, "ports": ports}
    metadata = {"name": "made", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


async def test_an_apply_that_is_refused_as_invalid_is_written_as_a_whole(cluster, writer, notes, owner):
    """As Kubernetes 1.20 refuses some: here the server is made to."""
    await writer.do(Apply(service([{"name": "a", "port": 80}]), "created"))
    theirs = {"metadata": {"ownerReferences": [owner["theirs"], owner["former"]]}}
    await cluster.client.patch_merge(SERVICES, "made", theirs, NAMESPACE)
    refused = []

    async def refuse_applies(request):
        if request.content_type == "application/apply-patch+yaml":
            refused.append(request.path)
            return web.json_response({"code": 422, "reason": "Invalid", "message": "leftovers"}, status=422)
        return None

    cluster.server.intercept(refuse_applies)
    wanted = service([{"name": "b", "port": 90}])
    wanted["metadata"]["ownerReferences"] = [owner["p"]]
    await writer.do(Apply(wanted, "changed"))
    assert refused
    found = await cluster.client.get(SERVICES, "made", NAMESPACE)
    assert [each["name"] for each in found["spec"]["ports"]] == ["b"]
    assert owners(found) == {"theirs", "p"}
    assert [each.came_out["spec"]["ports"][0]["name"] for each in notes.settled.values()] == ["b"]
    with pytest.raises(InvalidError, match="leftovers"):
        await writer.do(Apply(config_map({}), "created"))


async def test_only_the_object_that_was_looked_at_is_deleted(cluster, writer):
    await writer.do(Apply(config_map({}), "created"))
    key = ObjectKey("v1", "ConfigMap", NAMESPACE, "made")
    with pytest.raises(ConflictError):
        await writer.do(Delete(key, "another-uid", "not wanted"))
    uid = (await cluster.client.get(CONFIG_MAPS, "made", NAMESPACE)).metadata.uid
    await writer.do(Delete(key, uid, "not wanted"))
    with pytest.raises(NotFoundError):
        await cluster.client.get(CONFIG_MAPS, "made", NAMESPACE)


async def test_a_kind_that_the_operator_does_not_own_is_refused(writer):
    with pytest.raises(LookupError, match="Namespace"):
        await writer.do(Delete(ObjectKey("v1", "Namespace", "", NAMESPACE), "u", "never"))


async def test_labels_annotations_and_cordon_of_a_node_change_in_one_write(cluster, writer, notes):
    await create_node(cluster.client, node("a", {"gone": "x", "kept": "y"}))
    await writer.do(PatchNode(node="a", labels={"gone": None, "new": "z"}, annotations={"n": "1"}, unschedulable=True))
    found = await cluster.client.get(RAW_NODES, "a")
    assert found["metadata"]["labels"] == {"kept": "y", "new": "z"}
    assert found["metadata"]["annotations"] == {"n": "1"}
    assert found["spec"]["unschedulable"] is True
    assert cluster.writes == ["PATCH /api/v1/nodes/a"]
    await writer.do(PatchNode(node="a", unschedulable=False))
    assert "unschedulable" not in (await cluster.client.get(RAW_NODES, "a"))["spec"]


async def test_a_node_that_changed_since_it_was_looked_at_is_not_patched(cluster, writer):
    """A cordon that somebody set a moment ago, for one, must not become the operator's."""
    await create_node(cluster.client, node("a"))
    seen = (await cluster.client.get(NODES, "a")).metadata.resource_version
    cordoned = await cluster.client.patch_merge(NODES, "a", {"spec": {"unschedulable": True}})
    ours = {"node": "a", "annotations": {CORDONED_BY_ANNOTATION: "driver-upgrade"}, "unschedulable": True}
    with pytest.raises(ConflictError):
        await writer.do(PatchNode(**ours, resource_version=seen))
    assert CORDONED_BY_ANNOTATION not in (await cluster.client.get(NODES, "a")).metadata.annotations
    await writer.do(PatchNode(**ours, resource_version=cordoned.metadata.resource_version))
    assert CORDONED_BY_ANNOTATION in (await cluster.client.get(NODES, "a")).metadata.annotations
    assert cluster.writes == ["PATCH /api/v1/nodes/a"] * 2


async def test_a_patch_without_a_cordon_leaves_it_alone(cluster, writer):
    await create_node(cluster.client, node("a"))
    await cluster.client.patch_merge(NODES, "a", {"spec": {"unschedulable": True}})
    await writer.do(PatchNode(node="a", labels={"x": "y"}))
    assert (await cluster.client.get(RAW_NODES, "a"))["spec"]["unschedulable"] is True


async def test_only_the_pod_that_was_looked_at_is_deleted(cluster, writer):
    await create_node(cluster.client, node("a"))
    await create_pod(cluster.client, operand_pod("driver", "a", "driver"))
    view = OperandPod(namespace=NAMESPACE, name="driver", uid="another", node="a", operand="driver", daemon_set="d")
    with pytest.raises(ConflictError):
        await writer.do(DeletePod(view, "outdated"))


async def test_a_pod_is_evicted_as_its_budget_allows(cluster, writer):
    await create_node(cluster.client, node("a"))
    await create_pod(cluster.client, pod("web", "a", app="web"))
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"minAvailable": 1}}
    budget["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    await cluster.client.create(BUDGETS, budget)
    # A pod that does not run may always be evicted.
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    found = await cluster.client.patch_merge(PODS, "web", {"status": ready}, "default", subresource="status")
    workload = NodeWorkload(namespace="default", name="web", uid=found.metadata.uid, node="a")
    with pytest.raises(TooManyRequestsError):
        await writer.do(Evict(workload, "driver upgrade"))
    await cluster.client.delete(BUDGETS, "b", "default")
    await writer.do(Evict(workload, "driver upgrade"))
    assert (await cluster.client.get(PODS, "web", "default")).metadata.deletion_timestamp


async def test_a_pod_of_another_uid_is_not_evicted(cluster, writer):
    await create_node(cluster.client, node("a"))
    await create_pod(cluster.client, pod("web", "a"))
    with pytest.raises(ConflictError):
        await writer.do(Evict(NodeWorkload(namespace="default", name="web", uid="another", node="a"), "upgrade"))


async def test_a_status_replaces_what_stood_there(cluster, writer):
    await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": "p"}, "spec": {}})
    await writer.do(WriteStatus("p", ClusterPolicyStatus(state="notReady", nodes=NodeCounts(total=3, failing=1))))
    await writer.do(WriteStatus("p", ClusterPolicyStatus(state="ready", nodes=NodeCounts(total=3))))
    status = (await cluster.client.get(CLUSTER_POLICIES, "p"))["status"]
    assert (status["state"], status["nodes"]["failing"], status["nodes"]["total"]) == ("ready", 0, 3)


async def test_a_policy_is_claimed_only_in_the_version_that_was_looked_at(cluster, writer):
    made = await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": "p"}, "spec": {}})
    version = made["metadata"]["resourceVersion"]
    await writer.do(WriteStatus("p", ClusterPolicyStatus(namespace="first"), version))
    with pytest.raises(ConflictError):
        await writer.do(WriteStatus("p", ClusterPolicyStatus(namespace="second"), version))
    assert (await cluster.client.get(CLUSTER_POLICIES, "p"))["status"]["namespace"] == "first"


async def test_a_finalizer_is_set_only_on_the_version_that_was_looked_at(cluster, writer):
    made = await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": "p"}, "spec": {}})
    version = made["metadata"]["resourceVersion"]
    await writer.do(SetFinalizer("p", version, ("purser.dev/operator-cleanup",)))
    with pytest.raises(ConflictError):
        await writer.do(SetFinalizer("p", version, ()))
    found = await cluster.client.get(CLUSTER_POLICIES, "p")
    assert found["metadata"]["finalizers"] == ["purser.dev/operator-cleanup"]
