"""The Deployment controller, reduced: the newest template's ReplicaSet has all replicas, every other one none."""

import hashlib
from typing import Any

import msgspec

from purser.kube.client import Client
from purser.kube.clock import SystemClock, timestamp
from purser.kube.errors import AlreadyExistsError
from purser.kube.informer import Informer
from purser.kube.resources import Raw, untyped_resource
from purser.lab.controllers.workloads.loop import run_controller, write_status
from purser.lab.controllers.workloads.owned import owner_keys, owner_reference, owner_uid
from purser.lab.controllers.workloads.replicaset import REPLICA_SETS, failure_condition

DEPLOYMENTS = untyped_resource("apps", "v1", "deployments", "Deployment")
HASH_LABEL = "pod-template-hash"


async def run(client: Client, deployments: Informer[Raw], replica_sets: Informer[Raw]) -> None:
    """Until cancelled."""

    async def reconcile(deployment: Raw) -> None:
        uid = deployment["metadata"]["uid"]
        owned = [found for found in replica_sets.store.values() if owner_uid(found) == uid]
        name = f"{deployment['metadata']['name']}-{template_hash(deployment['spec']['template'])}"
        current = next((found for found in owned if found["metadata"]["name"] == name), None)
        replicas = deployment["spec"].get("replicas", 1)
        if current is None:
            await _create(client, deployment, name)
        for found in owned:
            await _scale(client, found, replicas if found is current else 0)
        await write_status(client, DEPLOYMENTS, deployment, _status(deployment, owned, current))

    await run_controller(deployments, reconcile, (replica_sets, lambda found: owner_keys(found, "Deployment")))


def template_hash(template: Raw) -> str:
    """A name for a pod template: equal templates have equal ones."""
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]


async def _create(client: Client, deployment: Raw, name: str) -> None:
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    hashed = {HASH_LABEL: name.rpartition("-")[2]}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), **hashed}
    selector = spec.get("selector") or {}
    body = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner_reference(DEPLOYMENTS, deployment)],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), **hashed}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }
    try:
        await client.create(REPLICA_SETS, body, metadata["namespace"])
    except AlreadyExistsError:
        return  # The informer lags behind; its next event is reconciled again.


async def _scale(client: Client, replica_set: Raw, replicas: int) -> None:
    if replica_set["spec"].get("replicas", 1) != replicas:
        metadata = replica_set["metadata"]
        await client.patch_merge(
            REPLICA_SETS, metadata["name"], {"spec": {"replicas": replicas}}, metadata["namespace"]
        )


def _status(deployment: Raw, owned: list[Raw], current: Raw | None) -> dict[str, Any]:
    def total(field: str, of: list[Raw]) -> int:
        return sum((found.get("status") or {}).get(field) or 0 for found in of)

    wanted = deployment["spec"].get("replicas", 1)
    available = total("availableReplicas", owned)
    is_available = available >= wanted
    status: dict[str, Any] = {
        "replicas": total("replicas", owned),
        "updatedReplicas": total("replicas", [current] if current else []),
        "readyReplicas": total("readyReplicas", owned),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
    }
    before = {c["type"]: c for c in (deployment.get("status") or {}).get("conditions") or ()}
    state = "True" if is_available else "False"
    known = before.get("Available")
    changed = known is None or known["status"] != state
    status["conditions"] = [
        {
            "type": "Available",
            "status": state,
            "reason": "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            "message": "",
            "lastTransitionTime": timestamp(SystemClock().now())
            if changed or known is None
            else known["lastTransitionTime"],
        }
    ]
    failure = None if current is None else failure_condition(current)
    if failure is not None:
        status["conditions"].append(failure)
    return status
