"""Whole pods through topology, device and CPU manager, one after another, against what the real kubelet did."""

from collections.abc import Iterable
from typing import Any

from tests.conformance.vectors import ORACLE_1_20, ORACLE_1_36, Check, CheckVectors, Vector, VectorFile, suites

from purser.core.kubelet import cpumanager
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import PreferredAllocation, finish
from purser.core.kubelet.config import CpuPolicy, KubeletConfig, TopologyPolicy, TopologyScope
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.devicemanager import held_by, register, update
from purser.core.kubelet.hints import NO_AFFINITY, Hint
from purser.core.kubelet.machine import DiscoveredCore, DiscoveredNode, Machine, NumaNode, discover
from purser.core.kubelet.masks import mask_of
from purser.core.kubelet.pod import KubeletPod, QosClass, kubelet_pod
from purser.core.kubelet.state import DeviceManagerState, KubeletNode, KubeletState, PluginDevice, PluginOptions
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest

Json = dict[str, Any]


def machine_of(numa_nodes: Iterable[Json]) -> Machine:
    return discover(
        DiscoveredNode(
            NumaNode(node["id"]),
            tuple(DiscoveredCore(tuple(threads), socket=node["socket"]) for threads in node["cores_threads"]),
        )
        for node in numa_nodes
    )


def devices_of(resources: dict[str, dict[str, list[int]]]) -> DeviceManagerState:
    state = DeviceManagerState()
    for resource, devices in resources.items():
        state = register(state, resource, PluginOptions(preferred_allocation=True))
        state = update(state, resource, [PluginDevice(id_, numa_nodes=tuple(nodes)) for id_, nodes in devices.items()])
    return state


def node_of(vector: Vector, version: str) -> KubeletNode:
    config = KubeletConfig(
        version,
        topology_policy=TopologyPolicy(vector["policy"]),
        topology_scope=TopologyScope(vector["scope"]),
        cpu_policy=CpuPolicy.STATIC,
        reserved_cpu_millis=vector["reserved_cpus"] * 1000,
    )
    return KubeletNode(config, machine_of(vector["node"]["numa_nodes"]))


def pod_of(entry: Json) -> KubeletPod:
    containers = tuple(
        ContainerSpec(container["name"], kind, container["limits"], container["requests"])
        for field, kind in (("init_containers", ContainerKind.INIT), ("containers", ContainerKind.APP))
        for container in entry[field]
    )
    return kubelet_pod(PodManifest(entry["uid"], "default", entry["name"], {}, containers))


def smallest(ask: PreferredAllocation) -> Iterable[str]:
    """The plugin of the vectors: what it must include, and of the rest the first by name."""
    return sorted(ask.must_include) + sorted(ask.available - ask.must_include)[: ask.size - len(ask.must_include)]


def held_in(state: KubeletState, pod: KubeletPod) -> dict[str, Json]:
    """What the containers hold that hold anything."""
    assert state.cpus is not None
    found = {}
    for container in pod.containers:
        key = (pod.uid, container.name)
        held: Json = {name: sorted(one.device_ids) for name, one in held_by(state.devices, key).items()}
        if key in state.cpus.exclusive:
            held["cpu"] = format_cpuset(state.cpus.exclusive[key])
        found[container.name] = held | {"hint": state.hints.get(key, NO_AFFINITY)}
    return found


def as_expected(allocation: dict[str, Json]) -> dict[str, Json]:
    def hint(entry: Json) -> Hint:
        return Hint(None if entry["mask"] is None else mask_of(entry["mask"]), entry["preferred"])

    return {container: {**held, "hint": hint(held["hint"])} for container, held in allocation.items()}


def admits_as_kubelet(vector: Vector, version: str) -> None:
    node = node_of(vector, version)
    state = KubeletState(devices_of(vector["node"]["devices"]), cpumanager.start(node, None))
    assert state.cpus is not None
    assert format_cpuset(state.cpus.default) == vector["node"]["initial_default_cpuset"]
    active: dict[str, str] = {}
    for place, step in enumerate(vector["steps"]):
        if step["op"] == "remove":
            active.pop(step["pod"], None)
            continue
        pod = pod_of(step["pod"])
        assert (pod.qos is QosClass.GUARANTEED) == step["guaranteed"], f"step {place}"
        outcome = finish(admit(node, state, pod, active.values()), smallest)
        state, refusal = outcome.state, outcome.refusal
        found = ("", "") if refusal is None else (refusal.reason, refusal.message)
        assert found == (step["expected_reason"], step["expected_message"]), f"step {place}"
        assert (refusal is None) == step["expected_admit"], f"step {place}"
        if refusal is None:
            active[step["pod"]["name"]] = pod.uid
            assert held_in(state, pod) == as_expected(step["expected_allocation"]), f"step {place}"
        assert state.cpus is not None
        assert format_cpuset(state.cpus.default) == step["expected_default_cpuset"], f"step {place}"


@suites(
    ("admission_sequences.json", admits_as_kubelet, (ORACLE_1_20, ORACLE_1_36)),
)
def test_vectors(file: VectorFile, check: Check, check_vectors: CheckVectors) -> None:
    check_vectors(file, check)
