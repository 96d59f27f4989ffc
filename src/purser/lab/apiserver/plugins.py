"""The admission plugins that are always on, as far as clients and schedulers see them.

LimitRanger, Priority, ServiceAccount (the name, not the token volume), DefaultTolerationSeconds, and the allocation of
Service addresses. ResourceQuota, which comes last, is in quotakeeping.py.
"""

from itertools import count

from . import limitranges
from .cluster import Cluster
from .errors import Obj, forbidden
from .resources import ServedResource
from .store import Selection

_TOLERATION_SECONDS = 300
_UNSCHEDULED_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def admit(cluster: Cluster, resource: ServedResource, obj: Obj) -> None:
    """Complete a new pod, in place; raises 403 for a priority class that does not exist."""
    if resource.storage == "pods":
        spec = obj["spec"]
        complete_resources(cluster, resource, obj)
        _priority(cluster, obj["metadata"].get("name", ""), spec)
        spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
        mirror_service_account(obj)
        _tolerations(spec)


def complete_resources(cluster: Cluster, resource: ServedResource, obj: Obj) -> None:
    """Give the containers of a new pod the defaults of its namespace's LimitRanges, in place."""
    if resource.storage == "pods":
        for limit_range in _limit_ranges(cluster, obj):
            limitranges.complete(limit_range, obj)


def check_resources(cluster: Cluster, resource: ServedResource, obj: Obj) -> None:
    """Hold a new pod to its namespace's LimitRanges; raises 403."""
    if resource.storage == "pods":
        for limit_range in _limit_ranges(cluster, obj):
            if why := limitranges.violation(limit_range, obj):
                raise forbidden("", "pods", obj["metadata"].get("name", ""), why)


def _limit_ranges(cluster: Cluster, pod: Obj) -> list[Obj]:
    here = Selection(namespace=pod["metadata"].get("namespace", ""))
    return [record.object() for record in cluster.store.collections["limitranges"].records(here)]


def mirror_service_account(pod: Obj) -> None:
    """`serviceAccount` is the deprecated twin of `serviceAccountName`."""
    if name := pod["spec"].get("serviceAccountName"):
        pod["spec"]["serviceAccount"] = name


def _priority(cluster: Cluster, pod_name: str, spec: Obj) -> None:
    name = spec.get("priorityClassName")
    chosen = _class(cluster, name) if name else _default_class(cluster)
    if name and chosen is None:
        raise forbidden("", "pods", pod_name, f"no PriorityClass with name {name} was found")
    if chosen and not name:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = chosen["value"] if chosen else 0
    spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy") if chosen else "PreemptLowerPriority")


def _class(cluster: Cluster, name: str) -> Obj | None:
    return cluster.object("priorityclasses.scheduling.k8s.io", "", name)


def _default_class(cluster: Cluster) -> Obj | None:
    records = cluster.store.collections["priorityclasses.scheduling.k8s.io"].records()
    classes = [record.object() for record in records]
    return max((each for each in classes if each.get("globalDefault")), key=lambda each: each["value"], default=None)


def _tolerations(spec: Obj) -> None:
    tolerations = spec.get("tolerations") or []
    for taint in _UNSCHEDULED_TAINTS:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            added = {
                "key": taint,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _TOLERATION_SECONDS,
            }
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations


def _tolerates(toleration: Obj, taint: str) -> bool:
    return bool(toleration.get("key", taint) == taint and toleration.get("effect", "NoExecute") == "NoExecute")


_addresses = count(10)


def allocate(cluster: Cluster, resource: ServedResource, obj: Obj) -> None:
    """Give a new Service its cluster IP, in place. Nothing routes to it: the lab knows its servers by URL."""
    if resource.storage != "services" or obj["spec"].get("type") == "ExternalName":
        return
    number = next(_addresses) % 65_000
    address = obj["spec"].setdefault("clusterIP", f"10.96.{number // 250}.{number % 250 + 1}")
    obj["spec"].setdefault("clusterIPs", [address])
    obj["spec"].setdefault("internalTrafficPolicy", "Cluster")
    obj["spec"].setdefault("ipFamilies", ["IPv4"])
    obj["spec"].setdefault("ipFamilyPolicy", "SingleStack")
