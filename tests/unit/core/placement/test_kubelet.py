"""A pod goes only where kubelet takes it, and is granted the devices that kubelet will go for."""

import msgspec
import pytest

from purser.core.device.ids import device_ids
from purser.core.fleet import Fleet
from purser.core.fleet.kubelet_snapshot import Arrival
from purser.core.kubelet import cpumanager
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, TopologyPolicy, TopologyScope
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import (
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceMode,
    DeviceRequest,
    GpuPolicy,
    NodeInventory,
    PodRequest,
)
from purser.core.names import GPU_RESOURCE
from purser.core.placement import (
    DeviceAssignment,
    Evaluator,
    Placement,
    Reason,
    Refusal,
    decide,
    explain,
    kubelet,
    place,
    to_grant,
)
from purser.core.placement.kubelet import MAX_TRIES, find_admitted
from purser.core.placement.kubelet_prediction import predict
from purser.core.policy.settings import PolicySettings

GIB = 1 << 30
CPUS_PER_NUMA = 32
SPREAD = PolicySettings(gpu=(GpuPolicy.SPREAD,))


def machine(numa_nodes: int) -> Machine:
    cpus = tuple(Cpu(n, n // CPUS_PER_NUMA, n // CPUS_PER_NUMA, n) for n in range(CPUS_PER_NUMA * numa_nodes))
    return Machine(tuple(NumaNode(n, {"memory": 256 * GIB}) for n in range(numa_nodes)), cpus, numa_nodes)


def config(policy: TopologyPolicy, version: str = "v1.36.2", **more: object) -> KubeletConfig:
    return KubeletConfig(version, policy, cpu_policy=CpuPolicy.STATIC, reserved_cpus="0", **more)


def fleet_of(
    kubelet: KubeletConfig,
    numa_nodes: int = 2,
    cards: int = 8,
    slots: int = 1,
    names: tuple[str, ...] = ("n",),
    tells_numa: bool = True,
) -> Fleet:
    """Nodes whose cards are dealt out to their NUMA nodes in equal blocks."""
    fleet = Fleet()
    per_node = cards // numa_nodes
    mode = DeviceMode.WHOLE if slots == 1 else DeviceMode.SHARED
    for name in names:
        devices = tuple(
            Device(f"{name}-{i}", i, "NVIDIA", 40000, slots=slots, numa_nodes=(i // per_node,), mode=mode)
            for i in range(cards)
        )
        fleet.set_inventory(NodeInventory(name, devices))
        node = KubeletNode(kubelet, machine(numa_nodes))
        plugged = {
            id_: PluginDevice(id_, True, device.numa_nodes if tells_numa else None)
            for device in devices
            for id_ in device_ids(device)
        }
        gpus = PluginResource(plugged, frozenset(plugged), frozenset(), True, PluginOptions(False, True))
        state = KubeletState(DeviceManagerState({GPU_RESOURCE: gpus}), cpumanager.start(node, None))
        fleet.set_kubelet(name, node, state)
    return fleet


def pod(uid: str, gpus: int, cpus: int = 0, memory_mib: int | None = None, qos: QosClass | None = None) -> PodRequest:
    amounts = {GPU_RESOURCE: gpus, "cpu": cpus * 1000, "memory": GIB}
    qos = qos or (QosClass.GUARANTEED if cpus else QosClass.BURSTABLE)
    seen = KubeletPod(uid, (KubeletContainer("main", ContainerKind.APP, amounts, amounts),), qos)
    asks = DeviceRequest(gpus, memory_mib=memory_mib, memory_percent=None if memory_mib else 100, cores_percent=0)
    if memory_mib is None:
        asks = msgspec.structs.replace(asks, cores_percent=100)
    return PodRequest(uid, "ns", uid, (ContainerRequest("main", ContainerKind.APP, asks),), kubelet_pod=seen)


def bind(fleet: Fleet, request: PodRequest, name: str = "n") -> list[str]:
    """Place and reserve; the uuids."""
    node = fleet.node(name)
    placement = place(node, request)
    assert isinstance(placement, Placement), placement
    fleet.ledger.reserve(to_grant(placement, request, node.inventory))
    fleet.put_pod(name, request.kubelet_pod)
    return [share.uuid for share in placement.containers[0].shares]


def refusal(fleet: Fleet, request: PodRequest, name: str = "n") -> Refusal:
    verdict = place(fleet.node(name), request)
    assert isinstance(verdict, Refusal), verdict
    return verdict


def test_a_refusal_names_manager_policy_and_kubelets_own_words():
    fleet = fleet_of(config(TopologyPolicy.RESTRICTED))
    found = refusal(fleet, pod("u", 8, 16))
    assert found.counts == ((Reason.KUBELET_WOULD_REJECT, 1),)
    assert found.message == (
        "KubeletWouldReject: topology manager, policy restricted: TopologyAffinityError: "
        "Resources cannot be allocated with Topology locality"
    )
    said = explain({"n": found}, pod("u", 8, 16), fleet)
    assert "1 node has a kubelet that would reject the pod (topology manager, policy restricted" in said


def test_the_grant_follows_kubelet_to_the_numa_node_that_it_aligns_to():
    fleet = fleet_of(config(TopologyPolicy.BEST_EFFORT), slots=10)
    # Left alone, the placement would take the last card, of NUMA node 1; kubelet aligns to node 0, the smaller mask.
    alone = fleet_of(config(TopologyPolicy.NONE), slots=10)
    assert bind(alone, pod("u", 1, 4, 1000), "n") == ["n-7"]
    assert bind(fleet, pod("u", 1, 4, 1000), "n") == ["n-3"]


def test_pods_that_use_up_a_numa_node_send_the_next_to_the_other():
    fleet = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE))
    first = bind(fleet, pod("a", 3, 4))
    assert {uuid[-1] for uuid in first} < set("0123")
    assert "a pod is awaiting kubelet's admission" in refusal(fleet, pod("b", 4, 4)).message
    report_admitted(fleet, "a")
    assert {uuid[-1] for uuid in bind(fleet, pod("b", 4, 4))} == set("4567")


def test_a_node_whose_aligned_gpus_have_no_room_is_passed_over():
    """kubelet counts slots; that the cards of NUMA node 0 have no memory left it cannot know."""
    fleet = fleet_of(config(TopologyPolicy.BEST_EFFORT), slots=10)
    for uid in "abcd":
        bind(fleet, pod(uid, 1, 1, 40000))
        report_admitted(fleet, uid)
    found = refusal(fleet, pod("e", 1, 1, 40000))
    assert "would use devices on NUMA node 0" in found.message


def report_admitted(fleet: Fleet, uid: str, name: str = "n") -> None:
    """kubelet admitted the pod and the agent reported it: the pod is on its way no more."""
    kubelet = fleet.node(name).kubelet
    [arrival] = [each for each in kubelet.arrivals if each.pod.uid == uid]
    after = predict(kubelet.node, kubelet.state, [arrival])
    assert isinstance(after, KubeletState), after
    fleet.set_kubelet(name, kubelet.node, after)


def test_while_more_pods_are_on_their_way_than_orders_can_be_tried_the_node_takes_none():
    fleet = fleet_of(config(TopologyPolicy.BEST_EFFORT))
    for uid in "ab":
        bind(fleet, pod(uid, 1, 1))
    assert isinstance(place(fleet.node("n"), pod("c", 1, 1)), Placement)
    bind(fleet, pod("c", 1, 1))
    assert "3 pods are awaiting kubelet's admission" in refusal(fleet, pod("d", 1, 1)).message
    report_admitted(fleet, "a")
    assert isinstance(place(fleet.node("n"), pod("d", 1, 1)), Placement)


def test_pods_that_differ_in_cpus_alone_have_verdicts_of_their_own():
    evaluator = Evaluator(fleet_of(config(TopologyPolicy.RESTRICTED)))
    wide, narrow = (evaluator.evaluate(pod(f"u{c}", 8, c), ["n"]) for c in (48, 16))
    assert wide.fits
    assert narrow.refusals


def test_scope_pod_aligns_all_containers_at_once():
    fleet = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE, topology_scope=TopologyScope.POD))
    one = pod("u", 3, 1)
    second = ContainerRequest("second", ContainerKind.APP, one.containers[0].devices)
    amounts = one.kubelet_pod.containers[0].limits
    seen = KubeletPod(
        "u",
        (*one.kubelet_pod.containers, KubeletContainer("second", ContainerKind.APP, amounts, amounts)),
        QosClass.GUARANTEED,
    )
    both = msgspec.structs.replace(one, containers=(*one.containers, second), kubelet_pod=seen)
    assert "TopologyAffinityError" in refusal(fleet, both).message
    by_container = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE))
    assert isinstance(decide(by_container.node("n"), both, PolicySettings(), left=_unlimited()), DeviceAssignment)


def _unlimited():
    from purser.core.grant.quota import UNLIMITED

    return UNLIMITED


def test_a_share_is_taken_near_the_cpus_where_there_is_one_and_elsewhere_where_there_is_none():
    """kubelet gets no NUMA node of shared GPUs, and so puts the CPUs on node 0, the first that has enough."""
    fleet = fleet_of(config(TopologyPolicy.RESTRICTED), cards=2, slots=4, tells_numa=False)
    assert bind(fleet, pod("a", 1, 4, 30000)) == ["n-0"]
    report_admitted(fleet, "a")
    assert bind(fleet, pod("b", 1, 4, 30000)) == ["n-1"]


def two_containers(uid: str, first: tuple[int, int], second: tuple[int, int], cpus: int = 1) -> PodRequest:
    """Each asks for (cards, MiB on each)."""
    parts = [pod(uid, gpus, cpus, memory_mib) for gpus, memory_mib in (first, second)]
    names = ("main", "second")
    containers = tuple(
        msgspec.structs.replace(part.containers[0], name=n) for part, n in zip(parts, names, strict=True)
    )
    seen = tuple(
        msgspec.structs.replace(part.kubelet_pod.containers[0], name=n) for part, n in zip(parts, names, strict=True)
    )
    kubelets = KubeletPod(uid, seen, QosClass.GUARANTEED)
    return msgspec.structs.replace(parts[0], containers=containers, kubelet_pod=kubelets)


def test_where_the_last_container_finds_no_room_the_first_one_goes_elsewhere():
    """Left alone, the first container spreads to the idle card that the second one needs."""
    fleet = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE), cards=4, slots=4)
    bind(fleet, pod("a", 1, 1, 10000))
    report_admitted(fleet, "a")
    both = two_containers("u", (1, 10000), (1, 40000))
    verdict = place(fleet.node("n"), both, SPREAD)
    assert isinstance(verdict, Placement), verdict
    first, second = ([share.uuid for share in part.shares] for part in verdict.containers)
    [[held]] = [grant.containers[0].uuids for grant in fleet.ledger.grants("n")]
    assert first == [held]
    assert second != first


def test_the_search_ends_however_many_choices_there_are():
    fleet = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE), cards=16, slots=4)
    many = two_containers("u", (4, 10000), (9, 1000))
    kubelet, tried = fleet.node("n").kubelet, []

    def choose(request):
        tried.append(request)
        return tuple(f"n-{i}" for i in range(4)), tuple(f"n-{i}" for i in range(9))

    def arrival(pod, choice):
        return Arrival(pod, dict(zip(("main", "second"), choice, strict=True)))

    assert isinstance(find_admitted(kubelet, many, choose, arrival), Refusal)
    assert len(tried) <= MAX_TRIES


def test_a_pod_on_its_way_that_its_kubelet_will_not_take_is_waited_for():
    """What it reported has changed since: whose cards the pod behind it will find free, nobody knows yet."""
    fleet = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE))
    fleet.put_pod("n", pod("other", 0, 60).kubelet_pod)
    assert "a pod is awaiting kubelet's admission" in refusal(fleet, pod("u", 1, 1)).message
    fleet.forget_pod("other")
    assert isinstance(place(fleet.node("n"), pod("u", 1, 1)), Placement)


def test_the_grant_is_right_whichever_pod_kubelet_takes_first():
    """Best effort: the one that comes first is aligned to node 0. Both may have a card there, so both get one there."""
    fleet = fleet_of(config(TopologyPolicy.BEST_EFFORT), cards=4, slots=2)
    assert bind(fleet, pod("a", 1, 4, 1000)) <= ["n-1"]
    assert bind(fleet, pod("b", 1, 4, 1000))[0] in ("n-0", "n-1")


@pytest.fixture
def predicted(monkeypatch):
    """The orders in which pods were sent to kubelet ahead of time, as they are tried."""
    orders = []

    def noted(node, state, order):
        orders.append([arrival.pod.uid for arrival in order])
        return predict(node, state, order)

    monkeypatch.setattr(kubelet, "predict", noted)
    return orders


def test_a_pod_that_an_unused_node_refuses_is_not_tried_again_as_if_the_node_were_unused(predicted):
    fleet = fleet_of(config(TopologyPolicy.RESTRICTED))
    assert not refusal(fleet, pod("u", 8, 16)).resolvable
    assert predicted == [["u"]]


def test_a_pod_that_a_node_in_use_refuses_is_tried_as_if_nothing_were_taken(predicted):
    fleet = fleet_of(config(TopologyPolicy.NONE))
    fleet.put_pod("n", pod("other", 0, 60).kubelet_pod)  # of the CPUs alone
    report_admitted(fleet, "other")
    assert refusal(fleet, pod("u", 1, 10)).resolvable
    assert predicted == [["u"], ["u"]]


def test_a_share_that_is_near_at_once_is_foreseen_once_for_each_order(predicted):
    fleet = fleet_of(config(TopologyPolicy.RESTRICTED), numa_nodes=1, cards=2, slots=4, tells_numa=False)
    bind(fleet, pod("a", 1, 4, 1000))
    bind(fleet, pod("b", 1, 4, 1000))
    assert predicted == [["a"], ["a", "b"], ["b", "a"]]


def test_pods_that_kubelet_aligns_with_nothing_do_not_wait_for_one_another():
    """Shares without CPUs of their own: whatever kubelet takes first, the amounts are the same."""
    fleet = fleet_of(config(TopologyPolicy.SINGLE_NUMA_NODE), slots=4, tells_numa=False)
    for number in range(16):
        bind(fleet, pod(f"p{number}", 1, 0, 10000))
    assert len(fleet.node("n").kubelet.arrivals) == 16
    assert isinstance(place(fleet.node("n"), pod("q", 1, 4, 10000)), Placement)  # to be aligned, and alone in that


def test_under_policy_none_only_amounts_count():
    fleet = fleet_of(config(TopologyPolicy.NONE))
    for number in range(6):
        bind(fleet, pod(f"p{number}", 1, 4))
    assert "CPU manager" in refusal(fleet, pod("q", 1, 50)).message
    assert isinstance(place(fleet.node("n"), pod("q", 1, 4)), Placement)
