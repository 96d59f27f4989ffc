"""Clusters for the tests of explanations, as `kubectl get -o json` prints them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from purser.adapters.objects import ClusterObjects, objects_of_dump
from purser.core.grant.signing import GRANT_ANNOTATION
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION, SCHEDULER_NAME

Raw = dict[str, Any]
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def gpus(node: str, count: int, memory: int = 16384, model: str = "Tesla T4", **facts: Any) -> tuple[Device, ...]:
    return tuple(Device(f"{node}-{i}", i, model, memory, **{"slots": 10, **facts}) for i in range(count))


def node(name: str, devices: tuple[Device, ...] = (), *, labels: Mapping[str, str] = {}, **facts: Any) -> Raw:
    """``facts``: taints, unschedulable, annotations; anything else is an amount that it has for pods."""
    spec = {key: facts.pop(key) for key in ("taints", "unschedulable") if key in facts}
    annotations = dict(facts.pop("annotations", {}))
    amounts = {**ROOM, **{key.replace("__", "/"): value for key, value in facts.items()}}
    if devices:
        annotations[INVENTORY_ANNOTATION] = msgspec.json.encode(NodeInventory(name, devices)).decode()
        amounts = {"nvidia.com/gpu": str(sum(each.slots for each in devices)), **amounts}
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": dict(labels), "annotations": annotations},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name: str, limits: Mapping[str, str], *, on: str = "", share: Mapping[str, Any] = {}, **spec: Any) -> Raw:
    """``on`` a node, with a grant of ``share`` (uuid: MiB, or MiB and percent of compute)."""
    annotations = dict(spec.pop("annotations", {}))
    labels = spec.pop("labels", {})
    uid = f"uid-{name}"
    if share:
        amounts = ((uuid, each if isinstance(each, tuple) else (each, 0)) for uuid, each in share.items())
        part = ContainerGrant("c", ContainerKind.APP, tuple(DeviceShare(uuid, *each) for uuid, each in amounts))
        annotations[GRANT_ANNOTATION] = msgspec.json.encode(Grant(uid, "default", name, on, (part,))).decode()
    container = {"name": "c", "image": "i", "resources": {"limits": dict(limits), "requests": dict(limits)}}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "annotations": annotations,
            "labels": dict(labels),
        },
        "spec": {"schedulerName": SCHEDULER_NAME, "nodeName": on, "containers": [container], **spec},
        "status": {"phase": "Running" if on else "Pending", **({"startTime": "2026-01-01T00:00:00Z"} if on else {})},
    }


def gpu(memory: int = 0, count: int = 1, **more: str) -> dict[str, str]:
    asked = {"nvidia.com/gpu": str(count), **({"nvidia.com/gpumem": str(memory)} if memory else {})}
    return {**asked, **{key.replace("__", "/"): value for key, value in more.items()}}


def quota(**hard: str) -> Raw:
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {f"limits.nvidia.com/{key}": value for key, value in hard.items()}},
    }


def dump(*objects: Raw) -> bytes:
    return json.dumps({"kind": "List", "items": objects}).encode()


def cluster(*objects: Raw) -> ClusterObjects:
    return objects_of_dump(dump(*objects))
