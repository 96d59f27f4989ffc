"""States for the tests beside this file."""

from purser.core.model import ContainerKind, PcieLevel
from purser.core.state import (
    ClusterState,
    NodeDetails,
    StateContainer,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateKubelet,
    StateKubeletResource,
    StateLink,
    StateNode,
    StateNodeGpu,
    StatePoolPlace,
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


def details(name: str, gpus: int = 2) -> NodeDetails:
    """A node whose GPUs have four NVLinks each to each other one, a network device near all, and a kubelet."""
    uuids = [f"GPU-{index}" for index in range(gpus)]
    links = {uuid: tuple(StateLink(peer, None, 4, False) for peer in uuids if peer != uuid) for uuid in uuids}
    pool = StatePoolPlace("mellanox.com/net", "numa-0", 0, 8, 3, (PcieLevel.SAME_CPU,) * gpus)
    resources = (StateKubeletResource("nvidia.com/gpu", 20, 19, 7, (0, 1)),)
    return NodeDetails(
        name,
        tuple(StateNodeGpu(uuid, index, f"0000:0{index}:00.0", (0,), links[uuid]) for index, uuid in enumerate(uuids)),
        (pool,),
        StateKubelet("v1.34.1", "agent", "restricted", "pod", "static", "None", resources),
    )
