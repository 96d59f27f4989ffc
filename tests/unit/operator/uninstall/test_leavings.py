"""After `helm uninstall`: marks on nodes, certificates, the lease, and keys once no pod has a grant any more."""

import pytest
from aiohttp import web
from tests.unit.operator.embedded import NAMESPACE, create_node, create_pod, embedded, node, pod

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
from purser.kube import KubeError
from purser.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS, SECRETS
from purser.operator.uninstall.clean_up import clean_up

AGENT = {"app.kubernetes.io/name": "purser", "app.kubernetes.io/component": "agent"}
AMOUNTS = {"nvidia.com/gpumem": "81920", "nvidia.com/priority": "10"}
MADE = ((SECRETS, TLS_SECRET), (SECRETS, GRANT_KEY_SECRET), (CONFIG_MAPS, GRANT_KEY_CONFIGMAP))


@pytest.fixture
async def cluster(tmp_path):
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


async def left(cluster):
    """Names of what the release's pods made."""
    kinds = (SECRETS, CONFIG_MAPS, LEASES)
    return {each.metadata.name for kind in kinds for each in (await cluster.client.list(kind, NAMESPACE)).items}


async def test_nothing_is_left_and_nothing_of_others_goes(cluster):
    said = []
    await clean_up(cluster.client, NAMESPACE, timeout_s=5, say=said.append)
    after = await cluster.client.get(NODES, "n0")
    assert after.metadata.annotations == {"other": "stays"}
    assert ([taint.key for taint in after.spec.taints], after.spec.unschedulable) == (["a"], False)
    assert "Ready" in {each.type for each in after.status.conditions}
    assert not {*AGENT_CONDITIONS} & {each.type for each in after.status.conditions}
    assert not {*after.status.capacity, *after.status.allocatable} & {*AMOUNTS}
    assert await left(cluster) == set()
    assert len(said) == 5


async def test_a_node_that_goes_meanwhile_holds_nothing_up(cluster):
    async def gone(request):
        if request.method == "PATCH" and "/nodes/n0" in request.path:
            return web.json_response({"code": 404, "reason": "NotFound", "message": "no such node"}, status=404)
        return None

    cluster.server.intercept(gone)
    await clean_up(cluster.client, NAMESPACE, timeout_s=5, say=print)
    assert await left(cluster) == set()


async def test_keys_stay_while_a_pod_has_a_grant(cluster):
    await create_pod(cluster.client, pod("trainer", "n0"))
    await cluster.client.patch_merge(
        PODS, "trainer", {"metadata": {"annotations": {GRANT_ANNOTATION: "{}"}}}, "default"
    )
    said = []
    await clean_up(cluster.client, NAMESPACE, timeout_s=5, say=said.append)
    assert await left(cluster) == {GRANT_KEY_SECRET, GRANT_KEY_CONFIGMAP}
    assert "default/trainer" in said[-1]


async def test_agents_that_do_not_go_are_named_and_nothing_is_removed(cluster):
    await create_pod(cluster.client, pod("agent-x", "n0", NAMESPACE, **AGENT))
    with pytest.raises(KubeError, match="still there: pods agent-x"):
        await clean_up(cluster.client, NAMESPACE, timeout_s=0.1, say=print)
    assert len(await left(cluster)) == 4
