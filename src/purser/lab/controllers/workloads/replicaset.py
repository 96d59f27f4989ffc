"""The controllers of ReplicaSets and ReplicationControllers: as many pods as the spec says."""

from purser.kube.client import Client
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import Raw, Resource, untyped_resource
from purser.lab.controllers.workloads.loop import run_controller, write_status
from purser.lab.controllers.workloads.owned import OwnedPods, is_active, is_ready, owner_keys

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
REPLICATION_CONTROLLERS = untyped_resource("", "v1", "replicationcontrollers", "ReplicationController")


async def run(
    client: Client, kind: Resource[Raw], replica_sets: Informer[Raw], pods: Informer[Raw], recorder: EventRecorder
) -> None:
    """Those of one kind, until cancelled."""
    owned = OwnedPods(client, pods, recorder)

    async def reconcile(replica_set: Raw) -> None:
        wanted = replica_set["spec"].get("replicas", 1)
        active = [pod for pod in owned.of(replica_set) if is_active(pod)]
        for _ in range(wanted - len(active)):
            await owned.create(kind, replica_set)
        # As the real one: pods that do not run yet go first.
        for pod in sorted(active, key=is_ready)[: max(0, len(active) - wanted)]:
            await owned.delete(pod)
        active = [pod for pod in owned.of(replica_set) if is_active(pod)]
        ready = sum(map(is_ready, active))
        counts = {"replicas": len(active), "fullyLabeledReplicas": len(active)}
        await write_status(client, kind, replica_set, {**counts, "readyReplicas": ready, "availableReplicas": ready})

    await run_controller(replica_sets, reconcile, (pods, lambda pod: owner_keys(pod, kind.kind)))
