"""Grants, pods and kubelet's lists, in few words."""

from purser.agent.kubelet.pod_resources import ListedPod
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Enforcement, Grant

A, B, C, D = (f"GPU-{letter * 8}" for letter in "abcd")
NODE = "node-1"


def part(name="main", *uuids, kind=ContainerKind.APP, memory_mib=1000, cores_percent=10):
    shares = tuple(DeviceShare(uuid, memory_mib, cores_percent) for uuid in uuids)
    return ContainerGrant(name, kind, shares, Enforcement.NONE)


def init(name, *uuids, **amounts):
    return part(name, *uuids, kind=ContainerKind.INIT, **amounts)


def sidecar(name, *uuids, **amounts):
    return part(name, *uuids, kind=ContainerKind.SIDECAR, **amounts)


def grant(pod, *parts, namespace="ns", node=NODE):
    return Grant(pod_uid=f"uid-{pod}", namespace=namespace, pod=pod, node=node, containers=parts)


def listed(pod, namespace="ns", **containers):
    return ListedPod(namespace=namespace, name=pod, containers={name: tuple(ids) for name, ids in containers.items()})


def grants_of(*grants):
    return {f"{grant.namespace}/{grant.pod}": grant for grant in grants}


def device(uuid, **fields):
    return Device(**{"uuid": uuid, "index": 0, "model": "Tesla T4", "memory_mib": 16000, "slots": 10, **fields})


def slot(uuid, number):
    return f"{uuid}::{number}"


def slots(*uuids, count=3):
    return tuple(slot(uuid, number) for uuid in uuids for number in range(count))
