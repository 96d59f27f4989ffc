"""What a replica tells of the cluster's GPUs."""

from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.names import CORDONED_GPUS_ANNOTATION, NODE_POLICY_ANNOTATION
from purser.kube.resources import NODES, PODS
from purser.scheduler import capacity
from purser.scheduler.capacity import CapacityCounter
from purser.scheduler.reasons import PendingReason


def series(registry, name):
    """By label values."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        if family.name == name
        for sample in family.samples
    }


async def test_gpus_grants_and_waiting_pods_are_counted(monkeypatch):
    monkeypatch.setattr(capacity, "MAX_NAMESPACES", 2)
    async with server() as api, replica(api) as world:
        world.extender.attach(world.pods)
        await world.add_node("n1", cards=2, memory=8000)
        await world.add_node("n2", memory=4000)
        cordon = {"metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: "n2-0"}}}
        await world.client.patch_merge(NODES, "n2", cordon)
        await eventually(lambda: world.cache.fleet.node("n2").devices[0].cordoned)
        held = await world.add_pod("held", memory=2000, annotations={NODE_POLICY_ANNOTATION: "spread"})
        assert await world.bind(held, "n1") == ""
        large = await world.add_pod("large", memory=9000)
        await world.filter(large, "n1", "n2")
        odd = await world.add_pod("odd", memory="16Gi")
        await world.filter(odd, "n1")
        await world.add_pod("new", memory=100, annotations={NODE_POLICY_ANNOTATION: "spread=2,binpack=1"})
        counting = CapacityCounter(world.cache, world.extender, world.metrics.registry)
        for _ in range(2):  # Volcano 4615: what was heard of twice was added up
            world.cache.put_pod(world.cache.pod_by_uid(held.metadata.uid))
            await counting.count()

        def found(name):
            return series(world.metrics.registry, name)

        (model,) = {labels[0] for labels in found("purser_cluster_gpus")}
        assert {labels: count for labels, count in found("purser_cluster_gpus").items() if count} == {
            (model, "shared"): 1,
            (model, "idle"): 1,
            (model, "cordoned"): 1,
        }
        assert found("purser_cluster_memory_bytes") == {(model,): 20000 * 2**20}
        assert found("purser_cluster_granted_memory_bytes") == {("default", model, "spread"): 2000 * 2**20}
        assert set(found("purser_cluster_granted_cores_ratio")) == {("default", model, "spread")}
        assert found("purser_cluster_granted_gpus") == {("default", model, "spread"): 1}
        assert found("purser_cluster_default_policy") == {("binpack",): 1}
        waiting = {
            ("default", PendingReason.INVALID_REQUEST, "binpack"): 1,
            ("default", PendingReason.KUBE_SCHEDULER, "weighed"): 1,
            ("default", "CardInsufficientMemory", "binpack"): 1,
        }
        assert found("purser_cluster_pending_pods") == waiting
        assert found("purser_cluster_pending_gpus") == {("default", "binpack"): 1, ("default", "weighed"): 1}
        idle = found("purser_cluster_idle_gpus")
        assert 1.5 < sum(idle.values()) < 3
        assert idle[(model, "usable")] > 0

        await world.client.delete(PODS, "new", "default", grace_period_seconds=0)
        await world.bind(large, "n1")
        await eventually(lambda: set(world.extender.pending.totals()) == {("default", "binpack")})
        counting._metrics.clear()
        assert found("purser_cluster_gpus") == {}
