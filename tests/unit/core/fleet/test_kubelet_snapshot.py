"""What is known of a node's kubelet: who is on the way, and when two nodes are alike."""

import re
from random import Random

import msgspec
import pytest
from msgspec.structs import replace
from tests.conformance.kubelet.prediction.hardware import NIC_RESOURCE, NODE
from tests.conformance.kubelet.prediction.node import LiveNode
from tests.conformance.kubelet.prediction.pods import requesting_pod
from tests.tiers import some

from purser.core.fleet import Fleet
from purser.core.fleet.kubelet_snapshot import KubeletSnapshot, KubeletSnapshots, without_allocations
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.report import aligns, decode, encode, node_of, report_of, state_of
from purser.core.kubelet.state import (
    Allocation,
    CpuState,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    MemoryBlock,
    MemoryNode,
    MemoryState,
    MemoryTable,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant
from purser.core.names import GPU_RESOURCE
from purser.core.placement import Placement, decide, place
from purser.core.policy.settings import DEFAULT_POLICIES

# Who is on the way


def gpus(*ids: str, numa: int = 0) -> PluginResource:
    devices = {id_: PluginDevice(id_, True, (numa,)) for id_ in ids}
    return PluginResource(devices, frozenset(ids), frozenset(), True, PluginOptions(True, True))


@pytest.fixture
def node() -> KubeletNode:
    rng = Random("kubelet")
    while not aligns((live := LiveNode(rng)).node.config):
        pass
    return live.node


STATE = KubeletState(
    DeviceManagerState({GPU_RESOURCE: gpus("g0", "g1")}),
    CpuState(0b1111, 0b1),
    MemoryState({0: MemoryNode({"memory": MemoryTable(100, 0, 100, 0, 100)}, 1)}),
)
WITHOUT_MANAGERS = KubeletState(STATE.devices)


def pod(uid: str, qos: QosClass = QosClass.GUARANTEED, **limits: int) -> KubeletPod:
    amounts = {GPU_RESOURCE if name == "gpu" else name: n for name, n in limits.items()}
    return KubeletPod(uid, (KubeletContainer("c", ContainerKind.APP, amounts, amounts),), qos)


def grant(uid: str, *uuids: str) -> Grant:
    part = ContainerGrant("c", ContainerKind.APP, tuple(DeviceShare(uuid, 1, 0) for uuid in uuids))
    return Grant(uid, "ns", uid, "n", (part,))


def snapshots(node: KubeletNode, state: KubeletState, *pods: KubeletPod) -> KubeletSnapshots:
    known = KubeletSnapshots()
    known.set_report("n", node, state)
    for each in pods:
        known.put_pod("n", each)
    return known


def coming(kubelet: KubeletSnapshot | None) -> dict[str, dict[str, tuple[str, ...]]]:
    assert kubelet is not None
    return {arrival.pod.uid: dict(arrival.granted) for arrival in kubelet.arrivals}


def test_there_is_none_without_a_report(node):
    known = snapshots(node, STATE)
    assert known
    known.forget_report("n")
    assert not known
    assert known.of("n", []) is None


def test_a_bound_pod_is_on_its_way_with_what_it_was_granted(node):
    known = snapshots(node, STATE, pod("a", gpu=1), pod("b", cpu=1000))
    assert coming(known.of("n", [grant("a", "g1")])) == {"a": {"c": ("g1",)}, "b": {}}


def test_they_come_in_the_order_in_which_they_were_bound(node):
    known = snapshots(node, STATE, *(pod(uid, cpu=1000) for uid in "bca"))
    assert list(coming(known.of("n", []))) == ["b", "c", "a"]


def holding_devices(state: KubeletState) -> KubeletState:
    held = {("a", "c"): {GPU_RESOURCE: Allocation({0: ("g0",)})}}
    return replace(state, devices=replace(state.devices, held=held))


def with_cpus(state: KubeletState) -> KubeletState:
    return replace(state, cpus=replace(state.cpus, exclusive={("a", "c"): 2}))


def with_memory(state: KubeletState) -> KubeletState:
    return replace(state, memory=replace(state.memory, blocks={("a", "c"): (MemoryBlock(1, "memory", 1),)}))


def test_a_pod_is_on_its_way_until_all_that_kubelet_gives_it_is_reported(node):
    """An admission is seen bit by bit: kubelet writes one file after the other."""
    state, whose = STATE, [grant("a", "g0")]
    known = snapshots(node, state, pod("a", gpu=1, cpu=1000))
    for told in (holding_devices, with_cpus):
        state = told(state)
        known.set_report("n", node, state)
        assert list(coming(known.of("n", whose))) == ["a"]
    known.set_report("n", node, with_memory(state))
    assert coming(known.of("n", whose)) == {}


def test_a_pod_that_was_reported_in_full_is_on_its_way_no_more(node):
    known = snapshots(node, with_memory(with_cpus(holding_devices(STATE))), pod("a", gpu=1, cpu=1000))
    known.set_report("n", node, holding_devices(STATE))
    assert coming(known.of("n", [grant("a", "g0")])) == {}


@pytest.mark.parametrize(
    ("state", "what", "is_coming"),
    [
        pytest.param(STATE, pod("a", cpu=1000), True, id="its own CPUs"),
        pytest.param(replace(STATE, memory=None), pod("a", cpu=500), False, id="shared CPUs"),
        pytest.param(STATE, pod("a", cpu=500), True, id="its own memory"),
        pytest.param(WITHOUT_MANAGERS, pod("a", cpu=1000), False, id="whole CPUs where nobody manages them"),
        pytest.param(STATE, pod("a", QosClass.BURSTABLE, cpu=1000), False, id="not guaranteed"),
        pytest.param(WITHOUT_MANAGERS, pod("a", **{"example.com/none": 1}), False, id="a device that nobody offers"),
        pytest.param(
            WITHOUT_MANAGERS, pod("a", **{"nvidia.com/gpumem": 1}), False, id="an amount that is not a device"
        ),
        pytest.param(WITHOUT_MANAGERS, pod("a", gpu=0), False, id="no GPU"),
        pytest.param(WITHOUT_MANAGERS, pod("a", gpu=1), False, id="a GPU without a grant, which the agent refuses"),
    ],
)
def test_on_its_way_is_only_what_the_report_will_show_once_it_is_there(node, state, what, is_coming):
    assert bool(coming(snapshots(node, state, what).of("n", []))) == is_coming


def test_what_ended_pods_held_is_free(node):
    held = {("a", "c"): {GPU_RESOURCE: Allocation({0: ("g0",)})}, ("b", "c"): {GPU_RESOURCE: Allocation({0: ("g1",)})}}
    devices = replace(STATE.devices, held=held, allocated={GPU_RESOURCE: frozenset({"g0", "g1"})})
    known = snapshots(node, replace(STATE, devices=devices), pod("a", gpu=1), pod("b", gpu=1))
    assert known.forget_pod("b") == "n"
    assert known.forget_pod("b") is None
    assert known.of("n", []).state.devices.allocated == {GPU_RESOURCE: {"g0"}}
    assert known.of("n", [], gone={"a"}).state.devices.allocated == {}
    assert without_allocations(known.of("n", [])).state.devices.allocated == {}


def test_a_pod_is_on_one_node_only(node):
    known = snapshots(node, STATE, pod("a", cpu=1000))
    known.set_report("m", node, STATE)
    assert known.put_pod("m", pod("a", cpu=1000)) == "n"
    assert coming(known.of("n", [])) == {}
    assert list(coming(known.of("m", []))) == ["a"]
    assert known.node_of("a") == "m"


# When two nodes are alike

POSITIONS = {"g0": 0, "g1": 1}


def key(state: KubeletState, node: KubeletNode, *pods: KubeletPod, grants: tuple[Grant, ...] = ()) -> object:
    return snapshots(node, state, *pods).of("n", grants).key(POSITIONS)


def with_devices(**changes: object) -> KubeletState:
    return replace(STATE, devices=replace(STATE.devices, **changes))


def with_table(**changes: int) -> KubeletState:
    table = replace(STATE.memory.nodes[0].tables["memory"], **changes)
    return replace(STATE, memory=MemoryState({0: MemoryNode({"memory": table}, 1)}))


DIFFERENT = {
    "a card is taken": with_devices(allocated={GPU_RESOURCE: frozenset({"g0"})}),
    "another card is taken": with_devices(allocated={GPU_RESOURCE: frozenset({"g1"})}),
    "a card is elsewhere": with_devices(resources={GPU_RESOURCE: gpus("g0", "g1", numa=1)}),
    "a card is ill": with_devices(
        resources={GPU_RESOURCE: replace(gpus("g0", "g1"), healthy=frozenset({"g0"}), unhealthy=frozenset({"g1"}))}
    ),
    "the plugin does not choose": with_devices(
        resources={GPU_RESOURCE: replace(gpus("g0", "g1"), options=PluginOptions())}
    ),
    "the plugin said nothing yet": with_devices(resources={GPU_RESOURCE: replace(gpus("g0", "g1"), is_listed=False)}),
    "a plugin without devices": with_devices(
        resources={**STATE.devices.resources, "x.com/y": PluginResource(is_listed=True)}
    ),
    "devices of a plugin that is gone": with_devices(allocated={"x.com/y": frozenset({"y"})}),
    "fewer shared CPUs": replace(STATE, cpus=CpuState(0b0111, 0b1)),
    "other reserved CPUs": replace(STATE, cpus=CpuState(0b1111, 0b10)),
    "no CPU manager": replace(STATE, cpus=None),
    "no memory manager": replace(STATE, memory=None),
    "less memory free": with_table(free=50),
    "less memory at all": with_table(allocatable=90),
    "memory in a group": replace(STATE, memory=MemoryState({0: replace(STATE.memory.nodes[0], group=3)})),
    "memory in use": replace(STATE, memory=MemoryState({0: replace(STATE.memory.nodes[0], assignments=1)})),
}


def test_what_decides_makes_nodes_differ(node):
    keys = {"as it is": key(STATE, node)} | {name: key(state, node) for name, state in DIFFERENT.items()}
    assert len(set(keys.values())) == len(keys)


def test_pods_on_their_way_make_nodes_differ(node):
    a, b = pod("a", cpu=1000), pod("b", cpu=2000)
    keys = [
        key(STATE, node),
        key(STATE, node, a),
        key(STATE, node, b),
        key(STATE, node, a, b),
        key(STATE, node, b, a),
        key(STATE, node, pod("a", gpu=1), grants=(grant("a", "g0"),)),
        key(STATE, node, pod("a", gpu=1), grants=(grant("a", "g1"),)),
    ]
    assert len(set(keys)) == len(keys)


def test_who_they_are_does_not(node):
    assert key(STATE, node, pod("a", cpu=1000)) == key(STATE, node, pod("z", cpu=1000))


# Property: nodes with equal keys get equal verdicts, whatever their cards and pods are called


def renamed(live: LiveNode, fleet: Fleet) -> Fleet:
    """The same fleet on which every card and every pod has another name, in another alphabetical order."""
    cards = {device.uuid: f"CARD-{'zyxwvuts'[device.index]}" for device in live.inventory.devices}

    def words(text: str) -> str:
        for old, new in cards.items():
            text = text.replace(old, new)
        return re.sub(r'"pod(\d+)"', r'"renamed\1"', text)

    def through(value, kind):
        return msgspec.json.decode(words(msgspec.json.encode(value).decode()), type=kind)

    other = Fleet()
    other.set_inventory(through(live.inventory, type(live.inventory)))
    for held in fleet.ledger.grants(NODE):
        other.ledger.reserve(through(held, Grant))
    reported = fleet._kubelets._reports[NODE]
    report = decode(words(encode(report_of(reported.node, reported.state))))
    other.set_kubelet(NODE, node_of(report), state_of(report))
    for each in fleet._kubelets._pods.get(NODE, {}).values():
        other.put_pod(NODE, through(each, KubeletPod))
    return other


def is_of_chance(live: LiveNode) -> bool:
    """kubelet's picks of other plugins' devices go by id in the twin."""
    return NIC_RESOURCE in live.truth.devices.resources


@pytest.mark.parametrize("seed", some(range(8), 8))
def test_nodes_with_equal_keys_get_equal_verdicts_whatever_they_are_called(seed):
    rng = Random(f"names {seed}")
    alike = 0
    for _ in range(12):
        live = LiveNode(rng)
        if not aligns(live.node.config) or is_of_chance(live):
            continue
        for _ in range(6):
            live.pass_time()
            request = requesting_pod(rng, live.next_uid(), live.wishes)
            twin = renamed(live, live.fleet).node(NODE)
            assert twin.kubelet.key(_positions(twin)) == live.known.kubelet.key(_positions(live.known))
            mine, theirs = decide(live.known, request, DEFAULT_POLICIES), decide(twin, request, DEFAULT_POLICIES)
            assert mine == theirs
            alike += 1
            verdict = place(live.known, request)
            if isinstance(verdict, Placement):
                live.bind(request, verdict)
    assert alike


def _positions(node) -> dict[str, int]:
    return {state.device.uuid: place for place, state in enumerate(node.devices)}
