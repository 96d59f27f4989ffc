"""The operator as a process, from nothing to Ready and through what happens to a cluster."""

import importlib

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from tests.tiers import IS_LONG
from tests.unit.operator.embedded import NAMESPACE, create_node, eventually, node
from tests.unit.operator.embedded_cluster import OFF, POLICY, rounds, stack
from tests.unit.top.states import cluster

from purser.adapters.rollouts import make_rollout, read_policies
from purser.core.names import CORDONED_BY_ANNOTATION, POOL_LABEL
from purser.kube.resources import DAEMON_SETS, EVENTS, LEASES, NAMESPACES, NODES, PODS
from purser.operator.manifests.objects import OWNED_KINDS
from purser.operator.names import FIELD_MANAGER, LEASE, MANAGED_BY_LABEL, OPERAND_LABEL
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.running import Rounds
from purser.web.rollouts import operand_names, rollout_rows

OURS = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
PATHS = ("readyz", "healthz", "metrics")
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("quiet")]


FEWER = POLICY if IS_LONG else POLICY | {"spec": {"gfd": OFF, "migManager": OFF, "dcgm": OFF}}


@pytest_asyncio.fixture(loop_scope="module")
async def one(tmp_path):
    """A cluster of one node with a policy."""
    async with stack(tmp_path) as found:
        await found.client.create(CLUSTER_POLICIES, FEWER)
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def settled(tmp_path_factory):
    """The same after an operator was at it, for all tests that leave it as it was."""
    async with stack(tmp_path_factory.mktemp("settled")) as found:
        await found.client.create(CLUSTER_POLICIES, FEWER)
        async with found.operator() as port:
            await found.ready()
            await found.at_rest(port)
            count = len(found.cluster.writes)
            await found.round(port)
            found.written_when_ready = found.cluster.writes[count:]
            found.told_when_ready = {path: await told(port, path) for path in PATHS}
        yield found


async def test_others_read_what_is_rolled_out(settled):
    statuses, problems = await read_policies(settled.client)
    found = make_rollout(statuses, (await settled.client.list(NODES)).items, problems)
    (policy,), (row,) = found.policies, rollout_rows(found, cluster())
    assert (policy.name, policy.state, policy.nodes.ready, found.problems) == ("policy", "ready", 1, ())
    assert not row.is_changing and not row.has_failed
    assert {"driver", "device-plugin"} <= {*operand_names(found)} and len(row.gates) == len(operand_names(found))


async def daemon_set(stack, operand):
    selector = f"{OPERAND_LABEL}={operand}"
    [found] = (await stack.client.list(DAEMON_SETS, NAMESPACE, label_selector=selector)).items
    return found


async def labels(stack, name):
    return (await stack.client.get(NODES, name)).metadata.labels


async def test_a_cluster_becomes_ready_in_its_metrics_too_and_then_nothing_is_written(settled):
    assert settled.written_when_ready == []
    assert {path: status for path, (status, _) in settled.told_when_ready.items()} == dict.fromkeys(PATHS, 200)
    values = values_of(settled.told_when_ready["metrics"][1])
    assert values["gpu_operator_gpu_nodes_total"] == "1.0"
    assert values["gpu_operator_reconciliation_status"] == "1.0"
    assert float(values["gpu_operator_reconciliation_total"]) > 3
    assert values["gpu_operator_reconciliation_failed_total"] == "0.0"
    assert float(values["gpu_operator_reconciliation_last_success_ts_seconds"]) > 1e9
    assert values["gpu_operator_nodes_upgrades_done"] == "1.0"
    assert values[READY_DRIVERS] == "1.0"
    assert float(values['purser_operator_writes_total{kind="Node",verb="patch"}']) >= 3
    pods = (await settled.client.list(PODS, NAMESPACE, label_selector=OPERAND_LABEL)).items
    operands = {pod.metadata.labels[OPERAND_LABEL] for pod in pods}
    assert {"driver", "container-toolkit", "device-plugin", "operator-validator", "dcgm-exporter"} <= operands


SUBJECT = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}
ADDITIONS = {
    "DaemonSet": [
        ("/spec/template/spec/nodeSelector/nobody", "x"),
        ("/spec/template/spec/containers/-", {"name": "evil", "image": "e", "securityContext": {"privileged": True}}),
        ("/spec/template/spec/initContainers", [{"name": "first", "image": "e"}]),
        ("/spec/template/spec/containers/0/env", [{"name": "LD_PRELOAD", "value": "/x"}]),
        ("/spec/template/spec/containers/0/ports", [{"name": "theirs", "containerPort": 1}]),
    ],
    "Service": [("/spec/ports/-", {"name": "theirs", "port": 1}), ("/spec/selector/theirs", "x")],
    "ClusterRoleBinding": [("/subjects/-", SUBJECT)],
    "RoleBinding": [("/subjects/-", SUBJECT)],
    "ConfigMap": [("/data/theirs", "x")],
}
"""What somebody adds, by kind: to the first of those that the operator made."""


async def _owned(stack):
    """What the operator made of these kinds, by the path of its requests."""
    found = {}
    for resource in OWNED_KINDS:
        if resource.kind in ADDITIONS:
            made = (await stack.client.list(resource, label_selector=OURS)).items
            for each in made:
                metadata = each["metadata"]
                found[resource, metadata["name"], metadata.get("namespace")] = each
    return found


def _without_history(obj):
    metadata = {key: value for key, value in obj["metadata"].items() if key in ("labels", "annotations")}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


async def _repaired(one, port, before, spoilt):
    """Return once these objects are again as they were, and nothing else is written."""

    async def is_repaired():
        now = await _owned(one)
        return all(_without_history(now[each]) == _without_history(before[each]) for each in spoilt)

    await eventually(is_repaired)
    await one.settled(port)


async def _at_rest(one):
    """An operator that has just started finds nothing to write."""
    one.cluster.writes.clear()
    async with one.operator() as port:
        for _ in range(3):
            await one.round(port)
    assert one.cluster.writes == []


@pytest.mark.gate
async def test_what_a_user_adds_where_all_is_the_operators_goes_and_then_nothing_is_written(one):
    async with one.operator() as port:
        await one.settled(port)
        before = await _owned(one)
        spoilt = {}
        for place, obj in before.items():
            if place[0].kind not in spoilt and "mps" not in place[1]:
                spoilt[place[0].kind] = place
                additions = ADDITIONS[place[0].kind]
                if "initContainers" in obj.get("spec", {}).get("template", {}).get("spec", {}):
                    additions = [(path, value) for path, value in additions if not path.endswith("initContainers")]
                patch = [{"op": "add", "path": path, "value": value} for path, value in additions]
                await one.client.patch_json(place[0], place[1], patch, place[2])
        assert set(spoilt) == set(ADDITIONS)
        await _repaired(one, port, before, spoilt.values())
    await _at_rest(one)


CHANGED_KEYS = {
    "Service": [("/spec/ports/0/port", 9999)],
    "DaemonSet": [
        ("/spec/template/spec/containers/0/ports/0/containerPort", 9999),
        ("/spec/template/spec/containers/0/volumeMounts/0/mountPath", "/evil"),
    ],
}
"""What somebody changes of the exporter's objects: that by which the server tells items of a list apart."""


@pytest.mark.gate
async def test_an_item_whose_key_was_changed_is_not_left_beside_the_right_one(one):
    async with one.operator() as port:
        await one.settled(port)
        before = await _owned(one)
        spoilt = [each for each in before if each[0].kind in CHANGED_KEYS and "dcgm-exporter" in each[1]]
        for resource, name, namespace in spoilt:
            for path, value in CHANGED_KEYS[resource.kind]:
                patch = [{"op": "replace", "path": path, "value": value}]
                await one.client.patch_json(resource, name, patch, namespace)
        assert {each[0].kind for each in spoilt} == set(CHANGED_KEYS)
        await _repaired(one, port, before, spoilt)
    await _at_rest(one)


@pytest.mark.gate
async def test_a_cordon_that_a_user_sets_just_before_the_operators_own_stays_theirs(one):
    """In the moment between what the operator saw of the node and its write."""
    cordons = []

    async def cordon_first(request):
        if request.method == "PATCH" and request.path == "/api/v1/nodes/n0" and not cordons:
            body = await request.read()
            if b'"unschedulable":true' in body and request.headers["User-Agent"] == "purser-operator":
                cordons.append(await one.client.patch_merge(NODES, "n0", {"spec": {"unschedulable": True}}))
        return

    async with one.operator():
        await one.ready()
        one.cluster.server.intercept(cordon_first)
        patch = {"spec": {"driver": {"version": "999.9"}}}
        await one.client.patch_merge(CLUSTER_POLICIES, "policy", patch)
        await one.ready()
    assert cordons
    node = await one.client.get(NODES.raw(), "n0")
    assert node["spec"]["unschedulable"] is True
    assert CORDONED_BY_ANNOTATION not in node["metadata"]["annotations"]
    driver = (await daemon_set(one, "driver"))["spec"]["template"]["spec"]
    assert any("999.9" in each["image"] for each in driver["containers"])


async def test_a_write_that_the_server_refuses_is_reported_for_as_long_as_it_does(one):
    refused = []

    async def refuse(request):
        if request.method == "PATCH" and "/daemonsets/purser-dcgm-exporter" in request.path and refused != ["over"]:
            refused.append(request.path)
            status = {"code": 403, "reason": "Forbidden", "message": "hostPath is not allowed"}
            return web.json_response(status, status=403)
        return None

    one.cluster.server.intercept(refuse)
    async with one.operator():

        async def told():
            found = await one.condition("Degraded")
            return found if found.get("reason") == "WriteRefused" else None

        condition = await eventually(told)
        assert "DaemonSet purser-system/purser-dcgm-exporter" in condition["message"]
        assert "hostPath is not allowed" in condition["message"]
        tried = len(refused)
        await eventually(lambda: len(refused) > tried + 1)
        assert (await one.condition("Degraded")) == condition, "it does not come and go with the rounds"
        refused[:] = ["over"]
        await one.ready()
        assert (await one.condition("Degraded"))["status"] == "False"


@pytest.mark.gate
async def test_an_operator_of_another_namespace_stands_back_until_that_one_is_gone(one, monkeypatch):
    monkeypatch.setattr(importlib.import_module("purser.operator.deciding.reconcile"), "OTHER_NAMESPACE_RETRY_S", 0.1)
    await one.client.create(NAMESPACES, {"metadata": {"name": "theirs"}})
    await one.client.patch_merge(CLUSTER_POLICIES, "policy", {"status": {"namespace": "theirs"}}, subresource="status")
    async with one.operator() as port, aiohttp.ClientSession() as session:

        async def ready():
            async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                return response.status, await response.text()

        async def stands_back():
            return "use --namespace theirs" in (await ready())[1]

        async def told():
            return any(each.reason == "AnotherNamespace" for each in (await one.client.list(EVENTS)).items)

        await eventually(stands_back)
        await eventually(told)
        assert (await ready())[0] == 503
        assert await told_metrics(port) & LEADERS == {"gpu_operator_reconciliation_status"}
        await one.at_rest(port)
        assert one.cluster.writes == []
        await one.client.delete(NAMESPACES, "theirs")
        await one.ready()
        assert (await one.policy())["status"]["namespace"] == NAMESPACE
        assert (await ready())[0] == 200


@pytest.mark.gate
async def test_of_two_namespaces_operators_that_meet_a_new_policy_at_once_one_acts(tmp_path):
    async with stack(tmp_path) as two:
        await two.client.create(NAMESPACES, {"metadata": {"name": "theirs"}})
        async with two.operator("ours") as ours, two.operator("theirs", namespace="theirs") as theirs:
            for port in (ours, theirs):
                await eventually(lambda port=port: rounds(port))
            await two.client.create(CLUSTER_POLICIES, POLICY)
            for port in (ours, theirs):
                await two.settled(port)
            sets = (await two.client.list(DAEMON_SETS, label_selector=OURS)).items
            home = (await two.policy())["status"]["namespace"]
            assert {each["metadata"]["namespace"] for each in sets} == {home}


async def test_of_two_operators_one_acts_and_the_other_takes_over(settled):
    async with settled.operator("first") as port:
        await settled.ready()
        await settled.at_rest(port)
        settled.cluster.writes.clear()
        async with settled.operator("second") as other:
            for _ in range(3):
                await settled.round(port)
            assert settled.cluster.writes == []
            assert not await told_metrics(other) & LEADERS, "sums over all replicas are as the leader has them"
            lease = await settled.client.get(LEASES, LEASE, NAMESPACE)
            assert lease.spec.holder_identity == "first"
    async with settled.operator("second") as port:
        await create_node(settled.client, node("late"))
        await eventually(lambda: settled.cluster.writes)
        await settled.ready()
        await settled.client.delete(NODES, "late")
        await eventually(lambda: has_nodes(settled, 1))
        await settled.ready()
        await settled.at_rest(port)


async def has_nodes(stack, count):
    return (await stack.policy())["status"]["nodes"]["ready"] == count


async def steal_lease(stack):
    stolen = {"spec": {"holderIdentity": "stolen", "leaseDurationSeconds": 3600}}
    await stack.client.patch_merge(LEASES, LEASE, stolen, NAMESPACE)


async def test_who_lost_the_lease_writes_nothing_more(settled, monkeypatch):
    make_round, ended = Rounds.round, []

    async def noted(rounds, key):
        await make_round(rounds, key)
        ended.append(key)

    monkeypatch.setattr(Rounds, "round", noted)
    async with settled.operator("first") as port:
        await settled.ready()
        await settled.at_rest(port)
        await steal_lease(settled)
        await eventually(lambda: leads_no_more(port))
        settled.cluster.writes.clear()
        pool = (await labels(settled, "n0"))[POOL_LABEL]
        for label in (None, pool):
            ended.clear()
            await settled.client.patch_merge(NODES, "n0", {"metadata": {"labels": {POOL_LABEL: label}}})
            await eventually(lambda: ended)
        assert settled.cluster.writes == []
    await settled.client.delete(LEASES, LEASE, NAMESPACE)


async def told(port, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/{path}") as response:
        return response.status, await response.text()


async def metrics(port):
    return values_of((await told(port, "metrics"))[1])


def values_of(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


async def told_metrics(port):
    return {name.partition("{")[0] for name in await metrics(port)}


READY_DRIVERS = 'purser_operator_node_operands{operand="driver",state="ready"}'
LEADERS = {
    "gpu_operator_gpu_nodes_total",
    "gpu_operator_reconciliation_status",
    "gpu_operator_reconciliation_last_success_ts_seconds",
    "gpu_operator_nodes_upgrades_done",
    "purser_operator_node_operands",
}


async def leads_no_more(port):
    return not await told_metrics(port) & LEADERS
