"""kubelet's CPU manager on the inputs and outputs of the real one."""

from typing import Any

import pytest
from tests.conformance.vectors import (
    ALL_FOLDERS,
    TABLES_1_20,
    TABLES_1_36,
    Check,
    CheckVectors,
    Vector,
    VectorFile,
    suites,
)

from purser.core.kubelet.config import CpuOptions, CpuPolicy, KubeletConfig
from purser.core.kubelet.cpumanager import allocate, checkpoint, hints, pod_hints, remove
from purser.core.kubelet.cpumanager.allocation import take_aligned
from purser.core.kubelet.cpumanager.by_socket import free_cores, free_cpus, free_sockets
from purser.core.kubelet.cpumanager.picking import take_cpus
from purser.core.kubelet.cpumanager.requests import CPU, pod_guaranteed_cpus
from purser.core.kubelet.cpumanager.starting import reserve, validate_saved
from purser.core.kubelet.cpumanager.taking import NotTakenError, Tally
from purser.core.kubelet.cpumanager.topology import CpuTopology, topology_of
from purser.core.kubelet.cpuset import CpuSet, cpus_of, cpuset_of, format_cpuset
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.gotext import fnv1a_32
from purser.core.kubelet.hints import ResourceHints
from purser.core.kubelet.machine import (
    Cpu,
    DiscoveredCore,
    DiscoveredNode,
    DiscoveryError,
    Machine,
    NumaNode,
    discover,
)
from purser.core.kubelet.masks import mask_of, nodes_of
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, kubelet_pod
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest

OPTIONS = {
    "AlignBySocket": "align_by_socket",
    "DistributeCPUsAcrossCores": "distribute_cpus_across_cores",
    "DistributeCPUsAcrossNUMA": "distribute_cpus_across_numa",
    "FullPhysicalCPUsOnly": "full_pcpus_only",
    "PreferAlignByUncoreCacheOption": "prefer_align_cpus_by_uncorecache",
    "StrictCPUReservation": "strict_cpu_reservation",
}
ALGORITHMS = {
    "packed": CpuOptions(),
    "packed_spread": CpuOptions(distribute_cpus_across_cores=True),
    "packed_uncore": CpuOptions(prefer_align_cpus_by_uncorecache=True),
    "distributed_group1": CpuOptions(distribute_cpus_across_numa=True),
    "distributed_group_core": CpuOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
}

Outcome = tuple[str, str]
"""CPUs in the list format, and the error."""


def machine_of(topology: dict[str, Any]) -> Machine:
    cpus = tuple(Cpu(*row) for row in topology["cpus"])
    assert len(cpus) == topology["num_cpus"]
    numa_nodes = tuple(NumaNode(numa) for numa in sorted({cpu.numa for cpu in cpus}))
    machine = Machine(numa_nodes, cpus, topology["num_sockets"])
    assert len(machine.cpus_by_core) == topology["num_cores"]
    return machine


def node_of(vector: Vector, version: str, **options: bool) -> KubeletNode:
    config = KubeletConfig(version=version, cpu_policy=CpuPolicy.STATIC, cpu_options=CpuOptions(**options))
    return KubeletNode(config, machine_of(vector["topology"]))


def topology_as_counted(vector: Vector, version: str) -> CpuTopology:
    """With the counts of the vector: hand-made topologies of upstream's tests leave some out."""
    counts = vector["topology"]
    machine = machine_of(counts)
    return CpuTopology(machine, counts["num_sockets"], counts.get("num_numa_nodes", len(machine.numa_nodes)))


def pod_of(written: dict[str, Any]) -> KubeletPod:
    init = [_container_of(container, ContainerKind.INIT) for container in written["init_containers"]]
    apps = [_container_of(container, ContainerKind.APP) for container in written["containers"]]
    return kubelet_pod(PodManifest(written["uid"], "default", "pod", {}, (*init, *apps)))


def _container_of(written: dict[str, Any], kind: ContainerKind) -> ContainerSpec:
    return ContainerSpec(written["name"], kind, limits=written["limits"], requests=written["requests"])


def state_of(vector: Vector, reserved: CpuSet) -> CpuState:
    exclusive = {
        (pod, container): cpuset_of(cpus)
        for pod, containers in (vector["assignments"] or {}).items()
        for container, cpus in containers.items()
    }
    return CpuState(default=cpuset_of(vector["default_cpuset"]), reserved=reserved, exclusive=exclusive)


def taken(version: str, options: CpuOptions, topology: CpuTopology, available: CpuSet, count: int) -> Outcome:
    switches = behaviour(KubeletConfig(version=version).parsed_version)
    try:
        return format_cpuset(take_cpus(switches, options, topology, available, count)), ""
    except NotTakenError as error:
        return "", str(error)


# --- the files --------------------------------------------------------------------------------------------------------


def discovers_the_topology(vector: Vector, version: str) -> None:
    nodes = [
        DiscoveredNode(
            NumaNode(node["id"]),
            tuple(DiscoveredCore(tuple(core["threads"]), core["socket"]) for core in node["cores"]),
        )
        for node in vector["nodes"]
    ]
    if vector["expected_error"]:
        with pytest.raises(DiscoveryError) as raised:
            discover(nodes)
        assert str(raised.value) == vector["observed_error"]
        return
    expected = vector["expected"]
    topology = topology_of(KubeletNode(KubeletConfig(version=version), discover(nodes)))
    rows = [[cpu.cpu, cpu.numa, cpu.socket, cpu.core] for cpu in topology.machine.cpus]
    assert rows == expected["cpus"]
    assert topology.num_sockets == expected["num_sockets"]
    assert topology.cpus_per_core == expected["num_cpus"] // expected["num_cores"]


def accumulates(vector: Vector, version: str) -> None:
    topology = topology_as_counted(vector, version)
    tally = Tally(topology, cpuset_of(vector["available"]), vector.get("num_cpus", 0))
    if vector["op"] == "take":
        for cpus in vector["take"]:
            tally.take(cpuset_of(cpus))
        assert (tally.is_satisfied(), tally.is_failed()) == (vector["expected_satisfied"], vector["expected_failed"])
        assert (list(cpus_of(tally.taken)), tally.needed) == (vector["actual_result"], vector["actual_needed"])
        return
    functions = {"free_sockets": free_sockets, "free_cores": free_cores, "free_cpus": free_cpus}
    assert functions[vector["op"]](tally) == vector["actual"]


def takes_by_topology(vector: Vector, version: str) -> None:
    topology = topology_as_counted(vector, version)
    if "results" in vector:
        for name, result in vector["results"].items():
            _takes_one_of(vector, version, ALGORITHMS[name], topology, result)
    elif "distinct_results_in_60_runs" in vector:
        _takes_one_of(vector, version, CpuOptions(), topology, vector)
    else:
        options = _options_of(vector, topology)
        outcome = taken(version, options, topology, cpuset_of(vector["available"]), vector["num_cpus"])
        expected = [] if vector["observed_error"] else vector.get("observed", vector["expected"])
        assert outcome == (format_cpuset(cpuset_of(expected)), vector["observed_error"] or "")


def _takes_one_of(
    vector: Vector, version: str, options: CpuOptions, topology: CpuTopology, result: dict[str, Any]
) -> None:
    results = next(value for key, value in result.items() if key.startswith("distinct_results_in_"))
    cpus, error = taken(version, options, topology, cpuset_of(vector["available"]), vector["num_cpus"])
    assert cpus in (results or [""]), f"{cpus} is none of {results} with {options}"
    assert error == result["error"]


def _options_of(vector: Vector, topology: CpuTopology) -> CpuOptions:
    named = {OPTIONS[name]: value for name, value in (vector.get("options") or {}).items()}
    if vector.get("algorithm") == "distributed":
        assert vector["cpu_group_size"] in (1, topology.cpus_per_core)
        named |= {"distribute_cpus_across_numa": True, "full_pcpus_only": vector["cpu_group_size"] > 1}
    return CpuOptions(**named)


def runs_the_static_policy(vector: Vector, version: str) -> None:
    options = {name.replace("-", "_"): value == "true" for name, value in (vector.get("policy_options") or {}).items()}
    node = node_of(vector, version, **options)
    operations = {
        "start": _starts,
        "start_with_reserved_list": _starts,
        "remove": _removes,
        "allocate_cpus_with_mask": _picks,
        "allocate": _allocates,
        "allocate_with_reserved_list": _allocates,
    }
    operations[vector.get("op", "allocate")](node, vector)


def _starts(node: KubeletNode, vector: Vector) -> None:
    try:
        reserved = reserve(node, cpuset_of(vector["reserved"] or ()), vector["reserved_count"])
        state = validate_saved(node, reserved, state_of(vector, reserved))
    except KubeletStartError as error:
        assert str(error) == vector["expected_error"]
    else:
        assert vector["expected_error"] is None
        assert state.default == cpuset_of(vector["expected_cpuset"])
        assert state.reserved == reserved


def _removes(node: KubeletNode, vector: Vector) -> None:
    state = remove(node, state_of(vector, 0), (vector["pod_uid"], vector["container"]))
    assert state is not None
    assert state.default == cpuset_of(vector["expected_cpuset"])
    assert (vector["pod_uid"], vector["container"]) not in state.exclusive


def _picks(node: KubeletNode, vector: Vector) -> None:
    mask = None if vector["numa_mask"] is None else mask_of(vector["numa_mask"])
    try:
        cpus = take_aligned(node, cpuset_of(vector["default_cpuset"]), mask, vector["num_requested"])
    except NotTakenError as error:
        assert str(error) == vector["observed_error"]
    else:
        assert vector["observed_error"] is None
        assert list(cpus_of(cpus)) == vector["observed"]


def _allocates(node: KubeletNode, vector: Vector) -> None:
    reserved = reserve(node, cpuset_of(vector["reserved"] or ()), vector["reserved_count"])
    before = state_of(vector, reserved)
    pod = pod_of(vector["pod"])
    container = pod.containers[0]
    hint = vector.get("topology_hint")
    mask = mask_of(hint["mask"]) if hint and hint["mask"] is not None else None
    state, refused, _ = allocate(node, before, pod, container, mask, 0)
    assert (refused.error if refused else None) == vector["expected_error"]
    assert state is not None
    assert state.default == cpuset_of(vector["observed_default_cpuset"])
    if vector["expected_alloc"]:
        assert state.exclusive[pod.uid, container.name] == cpuset_of(vector["expected_cpuset"])
    elif (pod.uid, container.name) not in before.exclusive:
        assert (pod.uid, container.name) not in state.exclusive


def hints_at_numa_nodes(vector: Vector, version: str) -> None:
    pod = pod_of(vector["pod"])
    if vector["op"] == "pod_guaranteed_cpus":
        switches = behaviour(KubeletConfig(version=version).parsed_version)
        assert pod_guaranteed_cpus(switches, pod) == vector["expected"]
        return
    node = node_of(vector, version)
    state = state_of(vector, cpuset_of(vector["reserved"]))
    if vector["op"] == "pod_hints":
        found = pod_hints(node, state, pod)
    else:
        found = hints(node, state, pod, _named(pod, vector["container"]), 0)
    assert _as_written(found) == vector["observed_hints"]


def _named(pod: KubeletPod, name: str) -> KubeletContainer:
    return next(container for container in pod.containers if container.name == name)


def _as_written(found: ResourceHints | None) -> list[dict[str, Any]] | None:
    of_cpus = found.get(CPU) if found is not None else None
    if of_cpus is None:
        return None
    return [{"mask": list(nodes_of(hint.mask or 0)), "preferred": hint.preferred} for hint in of_cpus]


def reuses_what_init_containers_leave(vector: Vector, version: str) -> None:
    node = node_of(vector, version)
    reserved = reserve(node, 0, vector["reserved_count"])
    state: CpuState | None = state_of(vector, reserved)
    pod, reusable = pod_of(vector["pod"]), 0
    for container, expected in zip(pod.containers, [*vector["expected_init"], *vector["expected_app"]], strict=True):
        state, refused, reusable = allocate(node, state, pod, container, None, reusable)
        assert refused is None
        assert state is not None
        assert state.exclusive.get((pod.uid, container.name), 0) == cpuset_of(expected), container.name


def writes_and_reads_the_checkpoint(vector: Vector, version: str) -> None:
    written = checkpoint.CpuManagerCheckpoint(
        policy=vector["input"]["policyName"],
        default=vector["input"]["defaultCpuSet"],
        entries=vector["input"]["entries"],
        pod_entries={} if vector.get("format") == "v3" else None,
    )
    text = checkpoint.hash_input(written)
    assert text == vector["hash_input"].replace("CPUManagerCheckpointV2", "CPUManagerCheckpoint")
    assert fnv1a_32(text) == vector["checksum"]
    assert checkpoint.to_json(written) == vector["file"]
    assert checkpoint.parse(vector["file"]) == checkpoint.CpuManagerCheckpoint(
        written.policy, written.default, written.entries or {}, written.pod_entries
    )


@suites(
    ("cpu_discover.json", discovers_the_topology, (TABLES_1_20,)),
    ("cpu_accumulator.json", accumulates, (TABLES_1_20,)),
    ("cpu_take_by_topology.json", takes_by_topology, ALL_FOLDERS),
    ("cpu_static_policy.json", runs_the_static_policy, (TABLES_1_20, TABLES_1_36)),
    ("cpu_hints.json", hints_at_numa_nodes, (TABLES_1_20,)),
    ("cpu_init_containers.json", reuses_what_init_containers_leave, (TABLES_1_20,)),
    ("checkpoint_cpu_manager.json", writes_and_reads_the_checkpoint, (TABLES_1_20, TABLES_1_36)),
)
def test_vectors(file: VectorFile, check: Check, check_vectors: CheckVectors) -> None:
    check_vectors(file, check)
