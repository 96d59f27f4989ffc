"""The device manager against vectors of the real one: hints, choice of devices, questions to plugins, checkpoint."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from tests.conformance.vectors import (
    ORACLE_1_20,
    ORACLE_1_36,
    TABLES_1_20,
    TABLES_1_36,
    Check,
    CheckVectors,
    Vector,
    VectorFile,
    suites,
)

from purser.core.kubelet.asks import Ask, PreferredAllocation
from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.devicemanager import hints, pod_hints, register, update
from purser.core.kubelet.devicemanager.affinity import filter_by_affinity
from purser.core.kubelet.devicemanager.allocation import DeviceChoice, DeviceDemand, devices_to_allocate
from purser.core.kubelet.devicemanager.checkpoint import decode, decode_data, encode_data, spew
from purser.core.kubelet.devicemanager.holdings import counted
from purser.core.kubelet.devicemanager.requests import pod_request
from purser.core.kubelet.devicemanager.topologyhints import generate_hints, has_topology
from purser.core.kubelet.errors import CheckpointError
from purser.core.kubelet.gotext import fnv1a_32
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.machine import Machine, NumaNode
from purser.core.kubelet.masks import Mask, mask_of
from purser.core.kubelet.pod import KubeletContainer, KubeletPod
from purser.core.kubelet.state import (
    Allocation,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    PluginDevice,
    PluginOptions,
)
from purser.core.kubelet.versions import Behaviour, behaviour, parse_version
from purser.core.kubernetes.quantities import quantity_ceil
from purser.core.pod.manifest import ContainerKind

RESOURCE = "r"
"""What the oracle's only resource is called."""


def check_hints(vector: Vector, version: str) -> None:
    state = state_of(vector["devices"], held=held_of(vector["allocated"]))
    node = node_of(version, vector["numa_nodes"])
    pod = pod_of(vector["pod"])
    if vector["scope"] == "pod":
        found = pod_hints(node, state, pod)
    else:
        first_app = len(vector["pod"]["init_containers"])
        found = hints(node, state, pod, pod.containers[first_app + vector["container_index"]], reusable={})
    for kind in ("expected_hints", "observed_hints"):
        assert comparable(found) == comparable({name: hints_of(of) for name, of in vector[kind].items()}), kind


def check_generated_hints(vector: Vector, version: str) -> None:
    state = state_of({RESOURCE: vector["devices"]})
    node = node_of(version, vector["numa_nodes"])
    resource = state.resources[RESOURCE]
    assert has_topology(rules_of(version), resource) == vector["has_topology_alignment"]
    found = generate_hints(node, resource, vector["available"], vector["reusable"], vector["request"])
    assert found == hints_of(vector["expected_hints"])


def check_pod_request(vector: Vector, version: str) -> None:
    state = state_of({name: {"d": None} for name in vector["registered"]})
    pod = pod_of(
        {
            kind: [{"name": f"{kind}{n}", "limits": limits} for n, limits in enumerate(vector["pod"][kind])]
            for kind in ("init_containers", "containers")
        }
    )
    assert pod_request(rules_of(version), state, pod) == vector["expected"]


def check_aligned_allocation(vector: Vector, version: str) -> None:
    name = vector["resource"]
    response = vector["preferred_allocation_response"]
    state = state_of({name: vector["devices"]}, taken={name: vector["allocated"]}, asks=response is not None)
    want = DeviceDemand(("uid", "c"), name, vector["request"], mask_in(vector["hint"]))
    choice, _ = choose(version, state, want, response)
    assert choice.error is None
    assert len(choice.device_ids) == vector["request"]
    assert set(vector["expected_preferred_allocation"]) <= choice.device_ids
    if any(vector["devices"].values()):
        first_nodes = Counter(str(nodes[0]) for id_ in choice.device_ids if (nodes := vector["devices"][id_]))
        assert first_nodes == vector["expected_alignment"]


def check_allocate(vector: Vector, version: str) -> None:
    state = state_of(
        {RESOURCE: vector["devices"]},
        healthy=vector["healthy"],
        taken={RESOURCE: vector["allocated_before"]},
        asks=vector["plugin_has_preferred"],
    )
    mask = mask_in(vector["hint"])
    want = DeviceDemand(("uid", "c"), RESOURCE, vector["request"], mask, frozenset(vector["reusable"]))
    check_groups(vector, version, state)
    choice, asked = choose(version, state, want, vector["plugin_preferred_response"])
    assert (choice.error or "") == vector["error"]
    assert [question(ask) for ask in asked] == vector["plugin_call"]
    if vector["error"]:
        return
    if vector["deterministic"]:
        assert [sorted(choice.device_ids)] == vector["distinct_results"]
    else:
        possible = [shape(result, vector) for result in vector["distinct_results"]]
        assert shape(choice.device_ids, vector) in possible


def check_groups(vector: Vector, version: str, state: DeviceManagerState) -> None:
    available = frozenset(vector["healthy"]) - frozenset(vector["allocated_before"])
    groups = filter_by_affinity(rules_of(version), state.resources[RESOURCE], available, mask_in(vector["hint"]))
    assert [sorted(group) for group in groups] == [vector["aligned"], vector["unaligned"], vector["no_affinity"]]


def shape(ids: Iterable[str], vector: Vector) -> Counter[tuple[bool, ...]]:
    """How many devices of each kind a choice holds: which of a kind kubelet takes is random."""
    kinds = ("reusable", "plugin_preferred_response", "aligned", "unaligned", "no_affinity")
    return Counter(tuple(id_ in (vector[kind] or ()) for kind in kinds) for id_ in ids)


def check_preferred_arguments(vector: Vector, version: str) -> None:
    taken = {RESOURCE: vector["allocated"]}
    state = state_of({RESOURCE: vector["devices"]}, taken=taken, asks=True)
    mask = mask_in(vector["hint"])
    want = DeviceDemand(("uid", "c"), RESOURCE, vector["request"], mask, frozenset(vector["reusable"]))
    choice, asked = choose(version, state, want, [])
    assert choice.error is None
    assert [question(ask) for ask in asked] == [
        {
            "available": sorted(vector["observed_available"]),
            "must_include": sorted(vector["observed_must_include"]),
            "size": vector["observed_size"],
        }
    ]


def check_filter_by_affinity(vector: Vector, version: str) -> None:
    resource = state_of({RESOURCE: vector["devices"]}).resources[RESOURCE]
    groups = filter_by_affinity(rules_of(version), resource, frozenset(vector["available"]), mask_in(vector["hint"]))
    expected = (vector[f"expected_{group}"] for group in ("aligned", "unaligned", "no_affinity"))
    assert [sorted(group) for group in groups] == [sorted(group) for group in expected]


def check_checkpoint(vector: Vector, version: str) -> None:
    if vector["verify_after_reload_error"]:
        with pytest.raises(CheckpointError):
            decode(vector["file"])
        return
    data = decode_data(vector["file"])
    assert spew(data) == vector["hash_input"]
    assert fnv1a_32(spew(data)) == vector["checksum"]
    assert encode_data(data) == vector["file"]
    checkpoint = decode(vector["file"])
    assert sum(map(len, checkpoint.held.values())) == len(data.PodDeviceEntries or ())


# --- the vectors' values as the model's


def state_of(
    resources: dict[str, dict[str, list[int] | None]],
    *,
    healthy: list[str] | None = None,
    taken: dict[str, list[str]] | None = None,
    held: dict[tuple[str, str], dict[str, Allocation]] | None = None,
    asks: bool = False,
) -> DeviceManagerState:
    state = DeviceManagerState()
    for name, devices in resources.items():
        state = register(state, name, PluginOptions(preferred_allocation=asks))
        state = update(state, name, [device_of(id_, nodes, healthy) for id_, nodes in devices.items()])
    allocated = {name: frozenset(ids) for name, ids in (taken or {}).items()} | counted(held or {})
    return DeviceManagerState(state.resources, held or {}, allocated)


def device_of(id_: str, nodes: list[int] | None, healthy: list[str] | None) -> PluginDevice:
    return PluginDevice(id_, healthy is None or id_ in healthy, None if nodes is None else tuple(nodes))


def held_of(allocated: dict[str, dict[str, dict[str, list[str]]]]) -> dict[tuple[str, str], dict[str, Allocation]]:
    return {
        (uid, container): {name: Allocation({0: tuple(ids)}) for name, ids in of_container.items()}
        for uid, of_pod in allocated.items()
        for container, of_container in of_pod.items()
    }


def node_of(version: str, numa_nodes: list[int]) -> KubeletNode:
    return KubeletNode(KubeletConfig(version=version), Machine(numa_nodes=tuple(map(NumaNode, numa_nodes))))


def rules_of(version: str) -> Behaviour:
    return behaviour(parse_version(version))


def pod_of(pod: dict[str, Any]) -> KubeletPod:
    return KubeletPod(
        pod.get("uid", "uid"),
        tuple(
            KubeletContainer(of["name"], kind, {name: quantity_ceil(value) for name, value in of["limits"].items()})
            for key, kind in (("init_containers", ContainerKind.INIT), ("containers", ContainerKind.APP))
            for of in pod[key]
        ),
    )


def choose(
    version: str, state: DeviceManagerState, want: DeviceDemand, response: list[str] | None
) -> tuple[DeviceChoice, list[Ask]]:
    choosing = devices_to_allocate(rules_of(version), KubeletState(devices=state), want)
    asked: list[Ask] = []
    try:
        ask = next(choosing)
        while True:
            asked.append(ask)
            ask = choosing.send(tuple(response or ()))
    except StopIteration as end:
        return end.value, asked


def question(ask: Ask) -> dict[str, Any]:
    assert isinstance(ask, PreferredAllocation)
    return {"available": sorted(ask.available), "must_include": sorted(ask.must_include), "size": ask.size}


def mask_in(hint: dict[str, Any]) -> Mask | None:
    return None if hint["mask"] is None else mask_of(hint["mask"])


def hints_of(hints: list[dict[str, Any]] | None) -> tuple[Hint, ...] | None:
    return None if hints is None else tuple(Hint(mask_in(hint), hint["preferred"]) for hint in hints)


def comparable(hints: Any) -> dict[str, set[Hint] | None]:
    """Hints as a set: upstream's tables sort them."""
    return {name: None if of is None else set(of) for name, of in hints.items()}


@suites(
    ("device_hints.json", check_hints, (TABLES_1_20, TABLES_1_36)),
    ("device_hints.json", check_generated_hints, (ORACLE_1_20, ORACLE_1_36)),
    ("device_pod_request.json", check_pod_request, (TABLES_1_20,)),
    ("device_allocation.json", check_aligned_allocation, (TABLES_1_20,)),
    ("device_allocate.json", check_allocate, (ORACLE_1_20, ORACLE_1_36)),
    ("device_preferred_params.json", check_preferred_arguments, (TABLES_1_20,)),
    ("device_filter_by_affinity.json", check_filter_by_affinity, (TABLES_1_36,)),
    ("checkpoint_device_manager.json", check_checkpoint, (TABLES_1_20, TABLES_1_36)),
)
def test_vectors(file: VectorFile, check: Check, check_vectors: CheckVectors) -> None:
    check_vectors(file, check)
