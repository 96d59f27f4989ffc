"""Nodes and pods drawn by chance, as the twin has them and as JSON for kubelet's own managers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from purser.core.kubelet.config import (
    CpuOptions,
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)
from purser.core.kubelet.cpuset import cpus_of, parse_cpuset
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.core.kubelet.pod import CPU, MEMORY, KubeletContainer, KubeletPod, QosClass, qos_class
from purser.core.kubelet.state import KubeletNode
from purser.core.pod.manifest import ContainerKind

GIB, MIB = 1 << 30, 1 << 20
GPU, NIC, FPGA = "nvidia.com/gpu", "example.com/nic", "example.com/fpga"
HUGE_PAGES = "hugepages-2Mi"

Json = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
    """A pod comes; those of ``gone`` have ended before, and the ``unhealthy`` GPUs are so now."""

    pod: KubeletPod
    gone: tuple[str, ...]
    unhealthy: tuple[str, ...]


class Case(msgspec.Struct, frozen=True):
    """A node without pods, and what happens there."""

    node: KubeletNode
    devices: Mapping[str, Mapping[str, tuple[int, ...] | None]]
    """NUMA nodes by resource and id; None: no topology."""
    steps: tuple[Step, ...]


def draw(random: Random, version: str) -> Case:
    """A node of kubelet's version with one to four NUMA nodes, and one to six pods for it."""
    machine = _machine(random)
    node = KubeletNode(_config(random, version, machine), machine)
    has_pages = HUGE_PAGES in machine.numa_nodes[0].memory
    devices = _devices(random, len(machine.numa_nodes))
    steps = tuple(
        Step(_pod(random, f"uid-{place}", has_pages), _gone(random, place), _unhealthy(random, devices))
        for place in range(random.randint(1, 6))
    )
    return Case(node, devices, steps)


_PAIRS = (
    CpuOptions(distribute_cpus_across_numa=True, align_by_socket=True),
    CpuOptions(distribute_cpus_across_numa=True, align_by_socket=True, full_pcpus_only=True),
    CpuOptions(distribute_cpus_across_numa=True, full_pcpus_only=True),
)
"""What depends on one another: too rare by chance."""


def draw_spread(random: Random, version: str) -> Case:
    """A node with four NUMA nodes whose kubelet spreads CPUs over those of one socket, where it can."""
    while len((case := draw(random, version)).node.machine.numa_nodes) < 4:
        pass
    config = msgspec.structs.replace(
        case.node.config,
        topology_policy=random.choice([TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT]),
        cpu_policy=CpuPolicy.STATIC,
        cpu_options=random.choice(_PAIRS[:2]),
    )
    return msgspec.structs.replace(case, node=msgspec.structs.replace(case.node, config=config))


def _machine(random: Random) -> Machine:
    nodes, per_node, threads = random.choice([1, 2, 2, 4, 4]), random.choice([4, 8]), random.choice([1, 2])
    nodes_per_socket = random.choice([1, 2])
    cpus = tuple(
        Cpu(
            cpu,
            numa := cpu // per_node,
            numa // nodes_per_socket,
            cpu // threads * threads,
            cpu // 4,
        )
        for cpu in range(nodes * per_node)
    )
    memory = {MEMORY: 16 * GIB} | ({HUGE_PAGES: 64 * MIB} if random.random() < 0.3 else {})
    distances = [tuple(10 if a == b else 11 if a // 2 == b // 2 else 20 for b in range(nodes)) for a in range(nodes)]
    return Machine(tuple(NumaNode(n, memory, distances[n]) for n in range(nodes)), cpus)


def _config(random: Random, version: str, machine: Machine) -> KubeletConfig:
    has_memory = random.random() < 0.6
    return KubeletConfig(
        version,
        random.choice(list(TopologyPolicy)),
        random.choice(list(TopologyScope)),
        TopologyOptions(prefer_closest_numa_nodes=random.random() < 0.3),
        cpu_policy := random.choice([CpuPolicy.STATIC, CpuPolicy.STATIC, CpuPolicy.NONE]),
        _cpu_options(random) if cpu_policy is CpuPolicy.STATIC else CpuOptions(),
        reserved_cpus=random.choice(["", "0", f"0,{machine.cpus[-1].cpu}"]),
        reserved_cpu_millis=random.choice([500, 1000, 2000]),
        memory_policy=MemoryPolicy.STATIC if has_memory else MemoryPolicy.NONE,
        reserved_memory={random.randrange(len(machine.numa_nodes)): {MEMORY: GIB}} if has_memory else {},
    )


def _cpu_options(random: Random) -> CpuOptions:
    """None, one or two; many pairs keep a kubelet from starting."""
    if random.random() < 0.2:
        return random.choice(_PAIRS)
    names = [name for name in random.choices(CpuOptions.__struct_fields__, k=2) if random.random() < 0.4]
    return CpuOptions(**dict.fromkeys(names, True))


def _devices(random: Random, nodes: int) -> dict[str, dict[str, tuple[int, ...] | None]]:
    placements: list[tuple[int, ...]] = [(n,) for n in range(nodes)]
    gpus = {f"gpu-{n}-{i}": place for n, place in enumerate(placements) for i in range(random.choice([1, 2, 4]))}
    nics = {f"nic-{n}": place for n, place in enumerate(placements) if n == 0 or random.random() < 0.7}
    wide = random.choice([None, (), tuple(range(min(2, nodes)))])
    return {GPU: dict(gpus), NIC: dict(nics), FPGA: {f"fpga-{i}": wide for i in range(2)}}


def _gone(random: Random, place: int) -> tuple[str, ...]:
    return tuple(f"uid-{earlier}" for earlier in range(place) if random.random() < 0.25)


def _unhealthy(random: Random, devices: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    return tuple(id_ for id_ in devices[GPU] if random.random() < 0.2) if random.random() < 0.2 else ()


def _pod(random: Random, uid: str, has_pages: bool) -> KubeletPod:
    early = random.choices([ContainerKind.INIT, ContainerKind.SIDECAR], k=random.choice([0, 0, 0, 1, 2]))
    kinds = [*early, *[ContainerKind.APP] * random.choice([1, 1, 2])]
    is_whole = random.random() < 0.8
    containers = tuple(_container(random, f"c{place}", kind, is_whole, has_pages) for place, kind in enumerate(kinds))
    if random.random() < 0.1:  # the gate PodLevelResourceManagers is off: such a pod has no CPUs or memory of its own
        return KubeletPod(uid, containers, QosClass.BURSTABLE, is_pod_level=True)
    return KubeletPod(uid, containers, qos_class(containers))


def _container(random: Random, name: str, kind: ContainerKind, is_whole: bool, has_pages: bool) -> KubeletContainer:
    """Of a Guaranteed pod if ``is_whole``. On a machine without huge pages kubelet crashes where one is asked for."""
    millis = 1000 * random.randint(1, 6) + random.choice([0, 0, 0, 500])
    amounts = {CPU: millis, MEMORY: random.choice([1, 2, 8, 14, 17, 20]) * GIB}
    if has_pages and random.random() < 0.3:
        amounts[HUGE_PAGES] = random.choice([2, 40, 80]) * MIB
    devices = {name: n for name, most in ((GPU, 5), (NIC, 2), (FPGA, 1)) if (n := random.randint(-1, most)) > 0}
    requests = amounts if is_whole else amounts | {CPU: millis // 2}
    return KubeletContainer(name, kind, amounts | devices, requests | devices)


def to_json(case: Case) -> Json:
    """The case for `main.go`."""
    config = case.node.config
    reserved = parse_cpuset(config.reserved_cpus)
    topology = {"prefer-closest-numa-nodes": str(config.topology_options.prefer_closest_numa_nodes).lower()}
    return {
        "machine": _machine_json(case.node.machine),
        "topologyPolicy": config.topology_policy,
        "topologyScope": config.topology_scope,
        "topologyOptions": topology,
        "cpuPolicy": config.cpu_policy,
        "cpuOptions": {
            name.replace("_", "-"): "true" for name, on in msgspec.structs.asdict(config.cpu_options).items() if on
        },
        "reservedCpus": config.reserved_cpus,
        "reserved": _amounts(
            # reservedSystemCPUs takes the place of what systemReserved and kubeReserved say.
            {
                CPU: 1000 * len(cpus_of(reserved)) if reserved else config.reserved_cpu_millis,
                MEMORY: sum(each[MEMORY] for each in config.reserved_memory.values()),
            }
        ),
        "memoryPolicy": config.memory_policy,
        "reservedMemory": {number: _amounts(each) for number, each in config.reserved_memory.items()},
        "devices": {
            resource: {id_: None if nodes is None else list(nodes) for id_, nodes in each.items()}
            for resource, each in case.devices.items()
        },
        "steps": [
            {"pod": _pod_json(step.pod), "gone": list(step.gone), "unhealthy": list(step.unhealthy)}
            for step in case.steps
        ],
    }


def _machine_json(machine: Machine) -> Json:
    """cadvisor's MachineInfo."""
    nodes = []
    for numa in machine.numa_nodes:
        cores: dict[int, Json] = {}
        for cpu in (each for each in machine.cpus if each.numa == numa.node):
            core = {"core_id": cpu.core, "socket_id": cpu.socket, "uncore_caches": [{"id": cpu.uncore}]}
            cores.setdefault(cpu.core, {**core, "thread_ids": []})["thread_ids"].append(cpu.cpu)
        pages = numa.memory.get(HUGE_PAGES, 0) // (2 * MIB)
        nodes.append(
            {
                "node_id": numa.node,
                "memory": numa.memory[MEMORY],
                "hugepages": [{"page_size": 2048, "num_pages": pages}] if pages else [],
                "distances": list(numa.distances),
                "cores": list(cores.values()),
            }
        )
    return {
        "num_cores": len(machine.cpus),
        "num_sockets": len(machine.cpus_by_socket),
        "topology": nodes,
    }


def _pod_json(pod: KubeletPod) -> Json:
    early = [each for each in pod.containers if each.kind is not ContainerKind.APP]
    late = [each for each in pod.containers if each.kind is ContainerKind.APP]
    return {
        "metadata": {"name": pod.uid, "namespace": "default", "uid": pod.uid},
        "spec": {
            "initContainers": [_container_json(each) for each in early],
            "containers": [_container_json(each) for each in late],
            **({"resources": {"requests": {CPU: "40"}, "limits": {CPU: "40"}}} if pod.is_pod_level else {}),
        },
    }


def _container_json(container: KubeletContainer) -> Json:
    found: Json = {
        "name": container.name,
        "resources": {"limits": _amounts(container.limits), "requests": _amounts(container.requests)},
    }
    return found | ({"restartPolicy": "Always"} if container.kind is ContainerKind.SIDECAR else {})


def _amounts(amounts: Mapping[str, int]) -> Json:
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}


def document(cases: Sequence[Case], runs: int, gates: Mapping[str, bool]) -> str:
    """What `main.go` reads: each case is played so many times."""
    return json.dumps({"gates": dict(gates), "runs": runs, "nodes": [to_json(case) for case in cases]})
