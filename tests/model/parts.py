"""The values that states are made of."""

from functools import lru_cache
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from purser.core.grant.signing import sign
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Enforcement, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE, SCHEDULER_NAME
from purser.kube.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements

KEY = Ed25519PrivateKey.from_private_bytes(b"m" * 32)
GPU_MIB, SHARE_MIB, SLOTS = 1000, 600, 2
"""Two pods do not fit on one GPU, though it has a slot for each: kubelet does not keep them apart."""


class PodVersion(NamedTuple):
    """A pod as the API server has it."""

    name: str
    uid: str
    node: str = ""
    grant: Grant | None = None
    """In its annotations, signed."""
    phase: str = "Pending"
    after: tuple[str, ...] = ()
    """The uids whose ends kubelet hears of before it hears of this pod: its watch is in order."""


class Listed(NamedTuple):
    """A pod in kubelet's list."""

    name: str
    uid: str
    id: str = ""
    gpu: str = ""
    """By the agent's answer."""
    started: bool = False
    rejected: bool = False


class Booked(NamedTuple):
    """What an agent's book has of a pod."""

    grant: Grant
    id: str


@lru_cache(None)
def inventory(node: str, gpus: int) -> NodeInventory:
    """A node's GPUs, by index."""
    devices = (Device(f"{node}-gpu{i}", i, "T4", GPU_MIB, slots=SLOTS) for i in range(gpus))
    return NodeInventory(node, tuple(devices))


@lru_cache(None)
def grant(uid: str, node: str, gpu: str) -> Grant:
    """What each pod asks for, on one GPU."""
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(gpu, SHARE_MIB, 0),), Enforcement.NONE)
    return Grant(uid, "ns", uid.partition(".")[0], node, (part,))


signed = lru_cache(None)(lambda of: sign(of, KEY))


@lru_cache(None)
def pod(version: PodVersion) -> Pod:
    """The object that Purser's code reads."""
    started = "2026-01-01T00:00:00Z" if version.phase != "Pending" else ""
    limits = ResourceRequirements({GPU_RESOURCE: "1", "nvidia.com/gpumem": str(SHARE_MIB)})
    return Pod(
        ObjectMeta(version.name, "ns", version.uid, annotations=signed(version.grant) if version.grant else {}),
        PodSpec(version.node, SCHEDULER_NAME, containers=(Container("c", limits),)),
        PodStatus(version.phase, start_time=started),
    )


def is_live(version: PodVersion | None) -> bool:
    """Whether it is there and has not ended."""
    return version is not None and version.phase != "Failed"
