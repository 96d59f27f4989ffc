"""What the chart's hooks do: a cluster's CustomResourceDefinition becomes the one of this version, whatever was there;
after `helm uninstall` marks on nodes, certificates and the lease go, and keys once no pod has a grant any more."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.unit.cli.typed import beside
from tests.unit.operator.embedded import NAMESPACE, Embedded, create_node, create_pod, embedded, node, pod

from purser.core.names import (
    AGENT_CONDITIONS,
    DISPUTES_ANNOTATION,
    GRANT_ANNOTATION,
    GRANT_KEY_CONFIGMAP,
    GRANT_KEY_SECRET,
    HEALTH_CORDON_ANNOTATION,
    INVENTORY_ANNOTATION,
    KUBE_SCHEDULER_LEASE,
    TLS_SECRET,
    UNHEALTHY_TAINT,
)
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION
from purser.kube import KubeError, NotFoundError
from purser.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS, SECRETS
from purser.operator import chart_hooks
from purser.operator.chart_hooks import apply_definition, clean_up
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.policy.crd import definition

NAME = "clusterpolicies.purser.dev"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path) as found:
        yield found


def older() -> dict[str, Any]:
    """With another short name, without a field, with one that is gone by now, and with another rule."""
    found = copy.deepcopy(definition())
    found["spec"]["names"]["shortNames"] = ["cpol"]
    spec = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["devicePlugin"]
    spec["properties"]["psp"] = {"type": "object"}
    spec["x-kubernetes-validations"] = [{"rule": "true"}]
    return found


def same(live: dict[str, Any]) -> bool:
    wanted = definition()
    return live["spec"]["names"] == wanted["spec"]["names"] and live["spec"]["versions"] == wanted["spec"]["versions"]


async def test_one_that_is_not_there_is_made_and_served_at_once(cluster: Embedded) -> None:
    assert await apply_definition(cluster.client) == f"CustomResourceDefinition {NAME} created"
    assert (await cluster.client.list(CLUSTER_POLICIES)).items == []
    assert await apply_definition(cluster.client) == f"CustomResourceDefinition {NAME} unchanged"


async def test_an_older_one_is_replaced_whole_and_its_policies_stay(cluster: Embedded) -> None:
    await cluster.client.create(DEFINITIONS, older())
    await apply_definition(cluster.client)
    await cluster.client.create(CLUSTER_POLICIES, {"metadata": {"name": "gpus"}, "spec": {}})
    await cluster.client.patch_merge(DEFINITIONS, NAME, older())
    assert not same(await cluster.client.get(DEFINITIONS, NAME))

    assert await apply_definition(cluster.client) == f"CustomResourceDefinition {NAME} updated"
    assert same(await cluster.client.get(DEFINITIONS, NAME))
    assert (await cluster.client.get(CLUSTER_POLICIES, "gpus"))["metadata"]["name"] == "gpus"


async def test_labels_of_others_stay(cluster: Embedded) -> None:
    found = older()
    found["metadata"]["labels"] = {"theirs": "yes"}
    await cluster.client.create(DEFINITIONS, found)
    await apply_definition(cluster.client)
    assert (await cluster.client.get(DEFINITIONS, NAME))["metadata"]["labels"] == {"theirs": "yes"}


async def test_one_that_is_never_served_is_no_success(cluster: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_hooks, "CRD_SERVED_TIMEOUT_S", 0.3)
    monkeypatch.setattr(chart_hooks, "_is_established", lambda _: False)
    with pytest.raises(KubeError, match="kubectl describe crd"):
        await apply_definition(cluster.client)


async def test_the_command_prints_it_or_brings_the_clusters_up_to_date(cluster: Embedded, tmp_path: Path) -> None:
    code, out, _ = await beside("operator", "crd")
    assert (code, yaml.load(out, yaml.CSafeLoader)) == (0, definition())
    with pytest.raises(NotFoundError):
        await cluster.client.get(DEFINITIONS, NAME)
    config = cluster.server.write_kubeconfig(tmp_path / "kubeconfig")
    code, out, _ = await beside("operator", "crd", "--apply", f"--kubeconfig={config}")
    assert (code, out) == (0, f"CustomResourceDefinition {NAME} created\n")
    assert same(await cluster.client.get(DEFINITIONS, NAME))


AGENT = {"app.kubernetes.io/name": "purser", "app.kubernetes.io/component": "agent"}
AMOUNTS = {"nvidia.com/gpumem": "81920", "nvidia.com/priority": "10"}
MADE = ((SECRETS, TLS_SECRET), (SECRETS, GRANT_KEY_SECRET), (CONFIG_MAPS, GRANT_KEY_CONFIGMAP))


@pytest.fixture
async def released(tmp_path):
    async with embedded(tmp_path) as found:
        await create_node(found.client, node("n0"))
        written = {INVENTORY_ANNOTATION: "{}", DISPUTES_ANNOTATION: "{}", "other": "stays"}
        written[HEALTH_CORDON_ANNOTATION] = "needs-reboot"
        taints = [{"key": "a", "effect": "NoSchedule"}, {"key": UNHEALTHY_TAINT, "effect": "NoSchedule"}]
        spec = {"unschedulable": True, "taints": taints}
        await found.client.patch_merge(NODES, "n0", {"metadata": {"annotations": written}, "spec": spec})
        conditions = [{"type": each, "status": "True"} for each in AGENT_CONDITIONS]
        status = {"status": {"conditions": conditions, "capacity": AMOUNTS, "allocatable": AMOUNTS}}
        await found.client.patch_merge(NODES, "n0", status, subresource="status", strategic=True)
        for resource, name in MADE:
            await found.client.create(resource, {"metadata": {"name": name}}, NAMESPACE)
        await found.client.create(LEASES, {"metadata": {"name": KUBE_SCHEDULER_LEASE}}, NAMESPACE)
        yield found


async def left(released):
    """Names of what the release's pods made."""
    kinds = (SECRETS, CONFIG_MAPS, LEASES)
    return {each.metadata.name for kind in kinds for each in (await released.client.list(kind, NAMESPACE)).items}


async def test_nothing_is_left_and_nothing_of_others_goes(released):
    said = []
    await clean_up(released.client, NAMESPACE, timeout_s=5, say=said.append)
    after = await released.client.get(NODES, "n0")
    assert after.metadata.annotations == {"other": "stays"}
    assert ([taint.key for taint in after.spec.taints], after.spec.unschedulable) == (["a"], False)
    assert "Ready" in {each.type for each in after.status.conditions}
    assert not {*AGENT_CONDITIONS} & {each.type for each in after.status.conditions}
    assert not {*after.status.capacity, *after.status.allocatable} & {*AMOUNTS}
    assert await left(released) == set()
    assert said[0] == "removed Purser's annotations, conditions, taint and resources from node n0"
    assert [each.partition(" ")[0] for each in said[1:]] == ["deleted"] * 4
    assert f"deleted Lease {KUBE_SCHEDULER_LEASE}" in said


async def test_amounts_go_that_the_scheduler_listed_for_hamis_device_plugin(released):
    await create_node(released.client, node("hamis"))
    theirs = {"metadata": {"annotations": {REGISTER_ANNOTATION: "[]"}}}
    await released.client.patch_merge(NODES, "hamis", theirs)
    status = {"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}}
    await released.client.patch_merge(NODES, "hamis", status, subresource="status")
    await clean_up(released.client, NAMESPACE, timeout_s=5, say=lambda _: None)
    after = await released.client.get(NODES, "hamis")
    assert not {*after.status.capacity, *after.status.allocatable} & {*AMOUNTS}
    assert REGISTER_ANNOTATION in after.metadata.annotations


async def test_a_node_that_goes_meanwhile_holds_nothing_up(released):
    async def gone(request):
        if request.method == "PATCH" and "/nodes/n0" in request.path:
            return web.json_response({"code": 404, "reason": "NotFound", "message": "no such node"}, status=404)
        return None

    released.server.intercept(gone)
    await clean_up(released.client, NAMESPACE, timeout_s=5, say=print)
    assert await left(released) == set()


async def test_keys_stay_while_a_pod_has_a_grant(released):
    await create_pod(released.client, pod("trainer", "n0"))
    await released.client.patch_merge(
        PODS, "trainer", {"metadata": {"annotations": {GRANT_ANNOTATION: "{}"}}}, "default"
    )
    said = []
    await clean_up(released.client, NAMESPACE, timeout_s=5, say=said.append)
    assert await left(released) == {GRANT_KEY_SECRET, GRANT_KEY_CONFIGMAP}
    assert "default/trainer" in said[-1]


async def test_agents_that_do_not_go_are_named_and_nothing_is_removed(released):
    await create_pod(released.client, pod("agent-x", "n0", NAMESPACE, **AGENT))
    with pytest.raises(KubeError, match=r"pods still exist after .* s: agent-x"):
        await clean_up(released.client, NAMESPACE, timeout_s=0.1, say=print)
    assert len(await left(released)) == 4
