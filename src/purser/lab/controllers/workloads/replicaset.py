"""The controllers of ReplicaSets and ReplicationControllers: as many pods as the spec says."""

from purser.kube.client import Client
from purser.kube.clock import SystemClock, timestamp
from purser.kube.errors import ApiError
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
        refusal: ApiError | None = None
        try:
            for _ in range(wanted - len(active)):
                await owned.create(kind, replica_set)
        except ApiError as error:
            refusal = error
        # As the real one: pods that do not run yet go first.
        for pod in sorted(active, key=is_ready)[: max(0, len(active) - wanted)]:
            await owned.delete(pod)
        active = [pod for pod in owned.of(replica_set) if is_active(pod)]
        ready = sum(map(is_ready, active))
        counts = {"replicas": len(active), "fullyLabeledReplicas": len(active)}
        status = {**counts, "readyReplicas": ready, "availableReplicas": ready}
        await write_status(client, kind, replica_set, {**status, **_failure(replica_set, refusal)})
        if refusal is not None:
            raise refusal  # to try again later

    await run_controller(replica_sets, reconcile, (pods, lambda pod: owner_keys(pod, kind.kind)))


def failure_condition(obj: Raw) -> Raw | None:
    """A controller's condition ReplicaFailure; None: it has none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == "ReplicaFailure"), None)


def _failure(replica_set: Raw, refusal: ApiError | None) -> Raw:
    """The conditions to write, where they change."""
    known = failure_condition(replica_set)
    if refusal is None:
        return {} if known is None else {"conditions": []}
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": refusal.message}
    if known is not None and known.items() >= condition.items():
        return {}
    return {"conditions": [{**condition, "lastTransitionTime": timestamp(SystemClock().now())}]}
