"""What is there before the first request: namespaces, their service accounts, the system priority classes."""

import uuid

from . import defaults
from .cluster import Cluster
from .errors import Obj
from .jsonio import now
from .plugins import SYSTEM_PRIORITIES
from .store import ADDED, StoreEvent

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def fill(cluster: Cluster) -> None:
    """Put the first objects into the store; from then on each new namespace gets its default service account."""
    cluster.store.collections["namespaces"].subscribe(lambda event: _service_account(cluster, event))
    for name in _NAMESPACES:
        namespace = _object("v1", "Namespace", name, spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
        defaults.namespace(namespace)
        cluster.store.collections["namespaces"].put(namespace)
    for name, value in SYSTEM_PRIORITIES.items():
        body = _object(
            "scheduling.k8s.io/v1", "PriorityClass", name, value=value, preemptionPolicy="PreemptLowerPriority"
        )
        cluster.store.collections["priorityclasses.scheduling.k8s.io"].put(body)


def _service_account(cluster: Cluster, event: StoreEvent) -> None:
    if event.type == ADDED:
        account = _object("v1", "ServiceAccount", "default", namespace=event.after.key[1])
        cluster.store.collections["serviceaccounts"].put(account)


def _object(api_version: str, kind: str, name: str, namespace: str = "", **fields: object) -> Obj:
    metadata = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
