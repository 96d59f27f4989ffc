"""A driver upgrade of fifty hollow nodes with everything in its way, judged from the watch stream."""

import asyncio

import pytest

from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.controllers.disruption import BUDGETS
from purser.lab.controllers.workloads.deployment import DEPLOYMENTS
from purser.lab.hollow import HollowNodes
from purser.lab.hollow.node import FAILING_PODS_ANNOTATION, NOT_READY_ANNOTATION
from purser.lab.settings import LabSettings
from purser.operator.policy import CLUSTER_POLICIES
from tests import waiting
from tests.lab.upgrade_invariants import UpgradeInvariants
from tests.unit.operator.embedded_cluster import make_round

POLICIES = CLUSTER_POLICIES.raw()
PLAIN, ADMINS, PARALLEL, UNAVAILABLE = 41, 4, 8, 16
AWAY, BAD, CANARIES, REPLICAS = 1, 2, 2, 4
TOTAL = PLAIN + ADMINS + AWAY + BAD + CANARIES
NODES_OF_THE_LAB = (
    HollowNodes(name="gpu", count=PLAIN),
    HollowNodes(name="admins", count=ADMINS, unschedulable=True),
    HollowNodes(name="away", count=AWAY),
    HollowNodes(name="bad", count=BAD),
    HollowNodes(name="canary", count=CANARIES, labels={"pool": "canary"}),
)
POLICY = {
    "metadata": {"name": "gpus"},
    "spec": {
        "driver": {
            "version": "580.10",
            "upgradePolicy": {
                "maxParallelUpgrades": PARALLEL,
                "maxUnavailable": UNAVAILABLE,
                "canary": {"nodeSelector": {"pool": "canary"}},
                "haltAfterFailures": BAD,
            },
        },
        "gfd": {"enabled": False},
        "dcgmExporter": {"enabled": False},
        "migManager": {"enabled": False},
    },
}


@pytest.mark.gate
async def test_an_upgrade_keeps_its_bounds_halts_goes_on_and_ends(quiet_logs):
    async with Lab(LabSettings((), hollow=NODES_OF_THE_LAB, operator=True)) as lab:
        async with waiting.limit():
            await lab.ready()
        await lab.client.create(POLICIES, POLICY)
        await status(lab, lambda found: found.get("state") == "ready")
        await serve(lab.client)
        await annotate(lab.client, "away-0", NOT_READY_ANNOTATION, "true")
        for number in range(BAD):
            await annotate(lab.client, f"bad-{number}", FAILING_PODS_ANNOTATION, "driver=580.20")
        invariants = UpgradeInvariants(
            lab.client,
            parallel=PARALLEL,
            unavailable=UNAVAILABLE,
            foreign=[f"admins-{number}" for number in range(ADMINS)],
            canaries=[f"canary-{number}" for number in range(CANARIES)],
            least_serving=REPLICAS - 1,
        )
        async with invariants:
            await lab.client.patch_merge(POLICIES, "gpus", {"spec": {"driver": {"version": "580.20"}}})
            target = await halts(lab, invariants)
            await goes_on(lab, target)
            await recovers(lab)
        assert invariants.violations == []
        assert invariants.begun[:CANARIES] and {name.partition("-")[0] for name in invariants.begun[:CANARIES]} == {
            "canary"
        }
        assert invariants.most["parallel"] == PARALLEL
        assert await cordoned(lab.client) == {f"admins-{number}" for number in range(ADMINS)}


async def halts(lab, invariants):
    """The bad nodes stop it; the operator dies twice on the way there. Returns what it led to."""
    for _ in range(2):
        count = len(invariants.begun)
        await until(lambda count=count: len(invariants.begun) > count, "an upgrade begins")
        await lab.kill_operator()
        await lab.start_operator()
    found = await status(lab, lambda found: found["upgrade"]["halted"] and not found["upgrade"]["inProgress"])
    begun = len(invariants.begun)
    assert found["upgrade"]["failed"] == BAD
    assert found["upgrade"]["skipped"] == AWAY
    assert "bad-0" in found["upgrade"]["message"]
    degraded = next(each for each in found["conditions"] if each["type"] == "Degraded")
    assert degraded["status"] == "True"
    for _ in range(2):  # the second begins after the change that brings the first
        await make_round(lab.client, lab.operator_metrics_port, "gpus")
    assert len(invariants.begun) == begun
    return found["upgrade"]["target"]


async def goes_on(lab, target):
    """Somebody looked at it, and wants the others upgraded all the same."""
    resume = {"metadata": {"annotations": {"purser.dev/resume-upgrade": target}}}
    await lab.client.patch_merge(POLICIES, "gpus", resume)
    found = await status(lab, lambda found: not found["upgrade"]["pending"] and not found["upgrade"]["inProgress"])
    assert (found["upgrade"]["done"], found["upgrade"]["failed"]) == (TOTAL - BAD - AWAY, BAD)
    assert {f"bad-{number}" for number in range(BAD)} <= await cordoned(lab.client)


async def recovers(lab):
    """The bad drivers come to work, and the node that was away is back."""
    for number in range(BAD):
        await annotate(lab.client, f"bad-{number}", FAILING_PODS_ANNOTATION, None)
    await annotate(lab.client, "away-0", NOT_READY_ANNOTATION, None)
    await status(lab, lambda found: found["upgrade"]["done"] == TOTAL and found["state"] == "ready")
    pods = await lab.client.list(PODS.raw(), "purser-system", label_selector="purser.dev/operand=driver")
    images = [pod["spec"]["containers"][0]["image"] for pod in pods.items]
    assert len(images) == TOTAL
    assert all(":580.20-" in image for image in images)


async def serve(client):
    """Pods with GPUs, of which one at a time may be disturbed."""
    labels = {"app": "serve"}
    main = {"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [main]}}
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "serve"}, "spec": spec}, "default")
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    await client.create(BUDGETS, {"metadata": {"name": "serve"}, "spec": budget}, "default")

    async def is_spared():
        found = (await client.get(BUDGETS, "serve", "default")).get("status") or {}
        return (found.get("currentHealthy"), found.get("disruptionsAllowed")) == (REPLICAS, 1)

    await until(is_spared, "all pods serve")


async def annotate(client, node, key, value):
    await client.patch_merge(NODES, node, {"metadata": {"annotations": {key: value}}})


async def cordoned(client):
    nodes = (await client.list(NODES.raw())).items
    return {node["metadata"]["name"] for node in nodes if (node.get("spec") or {}).get("unschedulable")}


async def status(lab, is_so):
    """The policy's status, once it is so."""
    latest = {}

    async def looked():
        latest.clear()
        latest.update((await lab.client.get(POLICIES, "gpus")).get("status") or {})
        return latest and is_so(latest)

    try:
        await until(looked, "the status")
    except AssertionError as error:
        raise AssertionError(f"{error}: {latest.get('upgrade')}, {latest.get('failingNodes')}") from error
    return latest


async def until(is_so, what):
    while True:
        found = is_so()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert not waiting.is_over(), f"not in time: {what}"
        await asyncio.sleep(0.05)
