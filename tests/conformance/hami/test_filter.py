"""HAMi's ``Test_Filter``: which node and which card a pod gets under the four pairs of policies."""

import pytest

from purser.core.fleet import Fleet
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    GpuPolicy,
    Grant,
    NodeInventory,
    NodePolicy,
    PodRequest,
)
from purser.core.placement import Evaluator, Placement, best

APP, INIT = ContainerKind.APP, ContainerKind.INIT
NODES = {"node1": ("device1", "device2"), "node2": ("device3", "device4")}


def fleet() -> Fleet:
    """Cards of 8000 MiB and 10 slots; device1 and device4 each serve one pod already."""
    built = Fleet()
    for node, uuids in NODES.items():
        devices = tuple(Device(u, i, "NVIDIA", 8000, slots=10) for i, u in enumerate(uuids))
        built.set_inventory(NodeInventory(node, devices))
    for uid, node, share in (
        ("a", "node1", DeviceShare("device1", 2000, 25)),
        ("b", "node2", DeviceShare("device4", 6000, 75)),
    ):
        built.ledger.reserve(Grant(uid, "default", uid, node, (ContainerGrant("c", APP, (share,)),)))
    return built


def pod(node_policy: str, gpu_policy: str, *containers: tuple[ContainerKind, int]) -> PodRequest:
    parts = tuple(
        ContainerRequest(f"c{i}", kind, DeviceRequest(1, memory_mib=memory, cores_percent=20))
        for i, (kind, memory) in enumerate(containers or ((APP, 1000),))
    )
    return PodRequest(
        "new", "default", "p", parts, node_policy=NodePolicy(node_policy), gpu_policy=(GpuPolicy(gpu_policy),)
    )


def decide(request: PodRequest) -> tuple[str, list[str]]:
    state = fleet()
    evaluator = Evaluator(state)
    chosen = best(evaluator.evaluate(request, list(NODES)))
    assert chosen is not None
    placement = evaluator.place(chosen, request)
    assert isinstance(placement, Placement)
    return chosen, [share.uuid for container in placement.containers for share in container.shares]


@pytest.mark.parametrize(
    ("node_policy", "gpu_policy", "node", "device"),
    [
        ("binpack", "binpack", "node2", "device4"),
        ("binpack", "spread", "node2", "device3"),
        ("spread", "binpack", "node1", "device1"),
        ("spread", "spread", "node1", "device2"),
    ],
)
def test_filter(node_policy: str, gpu_policy: str, node: str, device: str) -> None:
    assert decide(pod(node_policy, gpu_policy)) == (node, [device])


def test_an_init_container_and_its_app_share_the_gpu_that_holds_the_larger() -> None:
    assert decide(pod("binpack", "binpack", (INIT, 5000), (APP, 4000))) == ("node2", ["device3", "device3"])


def test_all_nodes_that_fit_are_kept_for_kube_scheduler_to_weigh() -> None:
    """Better than HAMi, which returns one node and so silences kube-scheduler's own scores (HAMi#2264)."""
    assert Evaluator(fleet()).evaluate(pod("binpack", "binpack"), list(NODES)).fits == ["node1", "node2"]


def test_equal_nodes_are_decided_by_name() -> None:
    """Better than HAMi, where the winner among equals is whichever goroutine ends first."""
    state = Fleet()
    for name in ("node-b", "node-a", "node-c"):
        state.set_inventory(NodeInventory(name, (Device(f"{name}-0", 0, "NVIDIA", 8000, slots=10),)))
    assert best(Evaluator(state).evaluate(pod("binpack", "binpack"), ["node-c", "node-b", "node-a"])) == "node-a"
