"""States for the tests beside this file."""

from purser.core.model import ContainerKind
from purser.core.state import (
    ClusterState,
    StateContainer,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateNode,
    StateReason,
    StateShare,
    StateWaiting,
)

NOW = 1_800_000_000.0


def gpu(index: int = 0, *, held: int = 0, health: StateGpuHealth = StateGpuHealth.HEALTHY, uuid: str = "") -> StateGpu:
    return StateGpu(
        uuid=uuid or f"GPU-{index}",
        index=index,
        model="Tesla T4",
        mode="shared",
        resource="nvidia.com/gpu",
        parent="",
        health=health,
        reason="",
        cordoned=False,
        enforcement="none",
        slots=10,
        slots_held=1 if held else 0,
        memory_mib=1000,
        memory_held_mib=held,
        cores_percent=100,
        cores_held_percent=0,
        pods=1 if held else 0,
    )


def node(name: str, *gpus: StateGpu, cordoned: bool = False) -> StateNode:
    return StateNode(name, cordoned, "550", "0.1", gpus or (gpu(),))


def grant(pod: str, on: str = "n", memory: int = 100) -> StateGrant:
    share = StateShare("GPU-0", 0, memory, 0, "")
    container = StateContainer("c", ContainerKind.APP, "none", (share,))
    return StateGrant("default", pod, f"uid-{pod}", on, "running", (container,))


def waiting(pod: str, reason: str = "CardInsufficientMemory", message: str = "2 GPUs are too small") -> StateWaiting:
    reasons = (StateReason("Purser", reason, 1, 2, message),)
    return StateWaiting(
        "default", pod, f"uid-{pod}", "2027-01-15T07:59:00Z", "purser-scheduler", 0, 1, reason, message, reasons
    )


def cluster(
    nodes: tuple[StateNode, ...] = (),
    grants: tuple[StateGrant, ...] = (),
    waits: tuple[StateWaiting, ...] = (),
    notes: tuple[str, ...] = (),
) -> ClusterState:
    return ClusterState("", 1, None, nodes, grants, waits, notes)
