"""The StatefulSet controller: pods of fixed names, one after the other, with claims of their own."""

import re
from typing import Any

from purser.kube.client import Client
from purser.kube.errors import AlreadyExistsError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.resources import Raw, untyped_resource
from purser.lab.controllers.scheduling.claims import CLAIMS
from purser.lab.controllers.workloads.deployment import template_hash
from purser.lab.controllers.workloads.loop import run_controller, write_status
from purser.lab.controllers.workloads.owned import OwnedPods, is_active, is_ready, owner_keys
from purser.lab.controllers.workloads.statefulplan import REVISION_LABEL, plan, revision_of

STATEFUL_SETS = untyped_resource("apps", "v1", "statefulsets", "StatefulSet")
_NUMBER = re.compile("0|[1-9][0-9]{0,8}")


async def run(client: Client, stateful_sets: Informer[Raw], pods: Informer[Raw], recorder: EventRecorder) -> None:
    """Until cancelled."""
    owned = OwnedPods(client, pods, recorder)

    async def create(stateful_set: Raw, number: int, revision: str) -> None:
        name = f"{stateful_set['metadata']['name']}-{number}"
        await _claim(client, stateful_set, name)
        labels = {
            REVISION_LABEL: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(number),
        }
        await owned.create(STATEFUL_SETS, stateful_set, name=name, labels=labels, spec=_identity(stateful_set, name))

    async def reconcile(stateful_set: Raw) -> None:
        metadata, spec = stateful_set["metadata"], stateful_set["spec"]
        revision = f"{metadata['name']}-{template_hash(spec['template'])}"
        going = owned.going(stateful_set)
        there = _pods_by_ordinal(stateful_set, [*owned.of(stateful_set), *going])
        todo = plan(spec, revision, there, _pods_by_ordinal(stateful_set, going).keys())
        # Before the actions: refusals are raised, and are part of the status as well.
        await write_status(client, STATEFUL_SETS, stateful_set, _status(stateful_set, revision, list(there.values())))
        for number in todo.creations:
            await create(stateful_set, number, revision)
        for pod in todo.deletions:
            await owned.delete(pod)

    await run_controller(stateful_sets, reconcile, (pods, lambda pod: owner_keys(pod, "StatefulSet")))


def _pods_by_ordinal(stateful_set: Raw, pods: list[Raw]) -> dict[int, Raw]:
    prefix = f"{stateful_set['metadata']['name']}-"
    names = ((str(pod["metadata"]["name"]).removeprefix(prefix), pod) for pod in pods)
    return {int(number): pod for number, pod in names if _NUMBER.fullmatch(number)}


def _identity(stateful_set: Raw, name: str) -> dict[str, Any]:
    spec = stateful_set["spec"]
    template = spec["template"]["spec"]
    claimed = {each["metadata"]["name"] for each in spec.get("volumeClaimTemplates") or ()}
    others = [volume for volume in template.get("volumes") or () if volume["name"] not in claimed]
    own = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in sorted(claimed)]
    identity: dict[str, Any] = {"hostname": name, "volumes": [*others, *own]}
    return {**identity, "subdomain": spec["serviceName"]} if spec.get("serviceName") else identity


async def _claim(client: Client, stateful_set: Raw, pod: str) -> None:
    """The pod's claims, where they are not there from a pod of that name before it."""
    namespace = stateful_set["metadata"]["namespace"]
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        own = template["metadata"]
        labels = (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {}
        metadata = {**own, "name": f"{own['name']}-{pod}", "labels": {**(own.get("labels") or {}), **labels}}
        try:
            await client.create(CLAIMS, {"metadata": metadata, "spec": template.get("spec") or {}}, namespace)
        except AlreadyExistsError:
            continue


def _status(stateful_set: Raw, revision: str, pods: list[Raw]) -> dict[str, Any]:
    active = [pod for pod in pods if is_active(pod)]
    ready, updated = sum(map(is_ready, active)), sum(revision_of(pod) == revision for pod in active)
    before = (stateful_set.get("status") or {}).get("currentRevision") or revision
    # Only a set all of whose pods are of the newest template and ready has arrived there.
    current = revision if ready == updated == len(active) == stateful_set["spec"].get("replicas", 1) else before
    return {
        "replicas": len(active),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "updatedReplicas": updated,
        "currentReplicas": sum(revision_of(pod) == current for pod in active),
        "currentRevision": current,
        "updateRevision": revision,
    }
