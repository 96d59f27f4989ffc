"""What a user does who takes a suggestion: changes to Kubernetes' objects, which know nothing of how it was found.

Objects are as `kubectl get -o json` prints them; the pod that waits is the one that is named.
"""

import copy
import json
from typing import Any

from tests.unit.scheduler.explaining.listed import relisted

from purser.core.names import AGENT_STOPPING, CORDONED_GPUS_ANNOTATION, INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.scheduler.explaining import ChangeKind, SuggestedChange

Raw = dict[str, Any]


def find(objects: list[Raw], kind: str, name: str) -> Raw:
    return next(each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name)


def applied(objects: list[Raw], kind: ChangeKind, change: SuggestedChange, name: str = "p") -> list[Raw]:
    """The objects once a user has done what a suggestion says."""
    objects = copy.deepcopy(objects)
    change_pod(find(objects, "Pod", name), kind, change)
    if kind is ChangeKind.QUOTA:
        for quota, hard in change.quotas.items():
            find(objects, "ResourceQuota", quota)["spec"]["hard"] |= hard
    if change.node:
        change_node(find(objects, "Node", change.node), kind, change)
    return relisted([each for each in objects if f"default/{each['metadata']['name']}" not in change.pods])


def change_pod(pod: Raw, kind: ChangeKind, change: SuggestedChange) -> None:
    """A pod as its author writes it instead, where the suggestion is about the pod."""
    spec = pod["spec"]
    match kind:
        case ChangeKind.AMOUNT:
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                if container["name"] == change.container:
                    for part in container["resources"].values():
                        part[change.resource] = change.amount
        case ChangeKind.ANNOTATION:
            del pod["metadata"]["annotations"][change.annotation]
        case ChangeKind.NODE_SELECTOR:
            spec["nodeSelector"] = change.node_selector
        case ChangeKind.AFFINITY | ChangeKind.POD_ANTI_AFFINITY | ChangeKind.POD_AFFINITY:
            del spec["affinity"][kind]
        case ChangeKind.SPREAD:
            del spec["topologySpreadConstraints"]
        case ChangeKind.TOLERATIONS:
            tolerate(spec, [{"key": t.key, "value": t.value, "effect": t.effect} for t in change.tolerations])


def change_node(node: Raw, kind: ChangeKind, change: SuggestedChange) -> None:
    """A node as its administrator changes it, and what its agent tells of it then."""
    match kind:
        case ChangeKind.UNCORDON_GPU:
            annotations = node["metadata"]["annotations"]
            left = set(annotations[CORDONED_GPUS_ANNOTATION].split(",")) - set(change.gpus)
            annotations[CORDONED_GPUS_ANNOTATION] = ",".join(sorted(left))
        case ChangeKind.UNCORDON_NODE:
            node["spec"]["unschedulable"] = False
        case ChangeKind.AGENT:
            serve(node)
        case ChangeKind.KUBELET:
            unalign(node)
        case _:
            raise AssertionError(kind)


def serve(node: Raw) -> None:
    """Its agent runs, and lists its healthy devices to kubelet."""
    annotations = node["metadata"]["annotations"]
    inventory = json.loads(annotations[INVENTORY_ANNOTATION])
    for each in inventory["devices"]:
        if each.get("unhealthy_reason") == AGENT_STOPPING:
            each |= {"healthy": True, "unhealthy_reason": ""}
    annotations[INVENTORY_ANNOTATION] = json.dumps(inventory)
    listed = sum(each.get("slots", 1) for each in inventory["devices"] if each.get("healthy", True))
    node["status"]["allocatable"]["nvidia.com/gpu"] = str(listed)


def unalign(node: Raw) -> None:
    """Its kubelet has no topology manager policy."""
    annotations = node["metadata"]["annotations"]
    report = json.loads(annotations[KUBELET_ANNOTATION])
    report["config"]["topology_policy"] = "none"
    annotations[KUBELET_ANNOTATION] = json.dumps(report)


def tolerate(spec: Raw, taints: list[Raw]) -> None:
    spec["tolerations"] = [*spec.get("tolerations", ()), *({"operator": "Equal", **taint} for taint in taints)]
