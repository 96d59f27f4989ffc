"""Holds pods to the ResourceQuotas of their namespace, and keeps the status of these.

In a cluster kube-apiserver adds what a new pod takes, and kube-controller-manager takes off what pods leave, somewhat
later. Here both happen in the step that writes the pod.
"""

from . import quota
from .cluster import Cluster
from .errors import Obj, forbidden
from .resources import ServedResource
from .store import DELETED, Selection, StoredObject, StoreEvent

_QUOTAS = "resourcequotas"


def admit(cluster: Cluster, resource: ServedResource, pod: Obj, old: Obj | None = None) -> None:
    """The last of admission; raises 403. A pod that exists (``old``) counts anew only in scopes that it comes into."""
    if resource.storage != "pods":
        return
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    quotas = [record.object() for record in _of(cluster, namespace)]
    quotas = [each for each in quotas if quota.matches(each, pod) and not (old and quota.matches(each, old))]
    for each in quotas:
        if why := quota.missing_amounts(each, pod):
            raise forbidden("", "pods", name, f"failed quota: {each['metadata']['name']}: {why}")
    asked = quota.usage(pod) if quotas else {}
    for each in quotas:
        if why := quota.exceeded(each, asked):
            raise forbidden("", "pods", name, why)


def settle(cluster: Cluster, resource: ServedResource, written: Obj, before: Obj | None = None) -> None:
    """Write the status of a quota that was just written, unless its writer left alone what it is made of."""
    if resource.storage != _QUOTAS or (before and quota.standing(before) == quota.standing(written)):
        return
    namespace = written["metadata"]["namespace"]
    here = cluster.store.collections["pods"].records(Selection(namespace=namespace))
    status = quota.status(written, (record.object() for record in here))
    stored = cluster.object(_QUOTAS, namespace, written["metadata"]["name"])
    if stored and stored.get("status") != status:
        cluster.store.collections[_QUOTAS].put({**stored, "status": status})


def follow(cluster: Cluster) -> None:
    """Count pods in the quotas of their namespaces as they come, end and go."""

    def charge(storage: str, event: StoreEvent) -> None:
        if storage == "pods" and (records := _of(cluster, event.after.key[0])):
            _charge(cluster, records, event)

    cluster.store.follow(charge)


def _charge(cluster: Cluster, records: list[StoredObject], event: StoreEvent) -> None:
    before = event.before.object() if event.before else None
    after = None if event.type == DELETED else event.after.object()
    for each in (record.object() for record in records):
        used = quota.moved(each, before, after)
        if used != each["status"]["used"]:
            each["status"]["used"] = used
            cluster.store.collections[_QUOTAS].put(each)


def _of(cluster: Cluster, namespace: str) -> list[StoredObject]:
    return cluster.store.collections[_QUOTAS].records(Selection(namespace=namespace))
