"""Small clusters and pods that wait, drawn at random: nodes of every kind, and every change that docs/why.md lists may
be the one that helps."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.unit.core.placement.test_instances import gpu as cut_gpu
from tests.unit.scheduler.explained import Raw, gpu, gpus, node, pod, quota
from tests.unit.scheduler.explaining.listed import ANY, relisted

from purser.core.dialects import selectors
from purser.core.model import Device, DeviceMode, Enforcement, MigPlacement
from purser.core.names import (
    AGENT_STOPPING,
    CORDONED_GPUS_ANNOTATION,
    ENFORCEMENT_ANNOTATION,
    GPU_POLICY_ANNOTATION,
    KUBELET_ANNOTATION,
)
from purser.lab.hollow import vendors

TAINTS = [{"key": key, "value": "", "effect": "NoSchedule"} for key in ("red", "blue")]
APP = {"app": "a"}
NAMES = ("n0", "n1", "n2")
KINDS = ("shared", "shared", "shared", "shared", "whole", "aligned", "cut", "dcu", "plain")
DCU = "Hygon DCU"
PORT = {"hostPort": 80, "containerPort": 80}


def to_zone(zone: str) -> Raw:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def to_pods(kind: str) -> Raw:
    term = {"labelSelector": {"matchLabels": APP}, "topologyKey": "zone"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


Obstacle = str
OBSTACLES: tuple[Obstacle, ...] = (
    *(
        "taint",
        "cordoned node",
        "cordoned gpu",
        "unhealthy",
        "agent",
        "quota",
        "selector",
        "affinity",
        "spread",
        "annotation",
    ),
    *(
        "gpu memory",
        "gpu memory",
        "gpus",
        "cores",
        "cpu",
        "memory",
        "container",
        "init container",
        "port",
        "full",
        "full",
    ),
)
"""What may be in the way."""


def drawn(chance: random.Random) -> list[Raw]:
    """Nodes, pods on them, quotas, and pod ``p``, which has one to four obstacles in its way."""
    obstacles = frozenset(chance.sample(OBSTACLES, chance.choice((1, 2, 2, 3, 4))))
    kinds = chance.choice(
        (KINDS, ("shared",), ("whole",), ("aligned", "aligned", "plain"), ("cut",), ("dcu", "shared"))
    )
    are_listed = chance.random() < 0.5
    objects: list[Raw] = []
    chosen = [chance.choice(kinds) for _ in NAMES]
    for name, kind in zip(NAMES, chosen, strict=True):
        made, held = _node(chance, name, kind, obstacles, are_listed)
        objects += [made, *held]
    if "quota" in obstacles:
        objects.append(quota(gpumem=str(chance.choice((2, 4, 8, 12))), gpucores=str(chance.choice((20, 60, 200)))))
        if chance.random() < 0.3:
            more = quota(gpumem=str(chance.choice((3, 6, 20))))
            more["metadata"]["name"] = "r"
            objects.append(more)
    return relisted([*objects, _waiting(chance, chance.choice(chosen), obstacles)])


def _node(
    chance: random.Random, name: str, kind: str, obstacles: frozenset[Obstacle], are_listed: bool
) -> tuple[Raw, list[Raw]]:
    """One node and the pods on it."""
    some = chance.choice
    facts: dict[str, Any] = {"cpu": str(some((4, 8))), "memory": some(("4Gi", "8Gi")), "annotations": {}}
    if "taint" in obstacles and chance.random() < 0.8:
        facts["taints"] = chance.sample(TAINTS, some((1, 2)))
    if "cordoned node" in obstacles and chance.random() < 0.7:
        facts["unschedulable"] = True
    devices = _devices(chance, name, kind, obstacles)
    if devices and "cordoned gpu" in obstacles and chance.random() < 0.8:
        cordoned = chance.sample([each.uuid for each in devices], chance.randint(1, len(devices)))
        facts["annotations"][CORDONED_GPUS_ANNOTATION] = ",".join(cordoned)
    if kind == "aligned":
        facts["annotations"][KUBELET_ANNOTATION] = json.dumps(aligning(chance, name))
    if kind == "dcu":
        family = vendors.family_of(DCU)
        assert family is not None
        count = some((1, 2))
        facts["annotations"] |= vendors.registration(family, name, count)
        facts |= {key.replace("/", "__"): value for key, value in vendors.listed(family, count).items()}
    made = node(name, devices, labels={"zone": some(("z1", "z2")), "rack": some(("r1", "r2"))}, **facts)
    if kind == "aligned":
        made["status"]["nodeInfo"] = {"kubeletVersion": "v1.30.0"}
    pods = _pods(chance, name, kind, devices, obstacles)
    if devices and "agent" in obstacles and chance.random() < 0.7:
        made["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    if are_listed and devices:
        made["status"]["allocatable"][ANY] = "0"
    return made, pods


def _devices(chance: random.Random, name: str, kind: str, obstacles: frozenset[Obstacle]) -> tuple[Device, ...]:
    some = chance.choice
    facts: dict[str, Any] = {}
    if "unhealthy" in obstacles and chance.random() < 0.5:
        facts["healthy"] = False
    elif "agent" in obstacles and chance.random() < 0.3:
        facts |= {"healthy": False, "unhealthy_reason": AGENT_STOPPING}
    match kind:
        case "shared":
            facts |= {"slots": some((2, 4)), "enforcement": some((Enforcement.NONE, Enforcement.HAMI_CORE))}
            memory, model = some((4, 6, 8)), some(("T4", "A100"))
            return tuple(gpus(name, 4, memory, model, numa_nodes=(i // 2,), **facts)[i] for i in range(some((1, 2, 3))))
        case "whole":
            return gpus(name, some((1, 2)), 8, "A100", **facts, slots=1, mode=DeviceMode.WHOLE)
        case "aligned":
            whole = {"slots": 1, "mode": DeviceMode.WHOLE}
            return tuple(gpus(name, 2, 8, "T4", numa_nodes=(numa,), **whole)[numa] for numa in range(2))
        case "cut":
            held = some(([], [MigPlacement("3g.20gb", 0)], [MigPlacement("1g.5gb", 0), MigPlacement("2g.10gb", 4)]))
            return tuple(cut_gpu(f"{name}-{at}", at, held=held) for at in range(some((1, 2))))
    return ()


def aligning(chance: random.Random, name: str) -> Raw:
    """A kubelet with two NUMA nodes, each with one GPU and four CPUs."""
    numa = [{"node": at, "memory": {"memory": 1 << 34}, "distances": [10 + 10 * at, 20 - 10 * at]} for at in (0, 1)]
    return {
        "format": 1,
        "version": "v1.30.0",
        "config": {
            "topology_policy": chance.choice(("single-numa-node", "restricted")),
            "cpu_policy": "static",
        },
        "machine": {
            "numa_nodes": numa,
            "cpus": [[0, 0, 0, "0-3", [[0, 4]]], [1, 1, 1, "4-7", [[4, 4]]]],
            "num_sockets": 2,
        },
        "resources": {"nvidia.com/gpu": {"groups": [[[at], True, [[f"{name}-", str(at)]]] for at in (0, 1)]}},
        "cpus": {"default": "0-7", "reserved": "0"},
    }


def _pods(
    chance: random.Random, name: str, kind: str, devices: Sequence[Device], obstacles: frozenset[Obstacle]
) -> list[Raw]:
    """Those that the node has, which hold no more than there is."""
    some = chance.choice
    found: list[Raw] = []
    free = {each.uuid: each.memory_mib for each in devices}
    slots = {each.uuid: each.slots for each in devices}
    dcu_mib = 65536
    many = some((3, 4, 5)) if "full" in obstacles else some((0, 1, 2, 3))
    for which in range(many if kind != "aligned" else 0):
        more: dict[str, Any] = {"labels": some(({}, APP)), "priority": some((0, 0, 5))}
        if "affinity" in obstacles and chance.random() < 0.3:
            more["affinity"] = to_pods("podAntiAffinity")
        limits, share = {"cpu": some(("250m", "1")), "memory": some(("256Mi", "1Gi"))}, {}
        if free and kind in ("shared", "whole"):
            uuid = some(list(free))
            held = free[uuid] if kind == "whole" else min(some((2, 3, 4)), free[uuid])
            if held and slots[uuid] and "stranger" not in obstacles:
                free[uuid], slots[uuid] = free[uuid] - held, slots[uuid] - 1
                share = {uuid: (held, 100 if kind == "whole" else some((0, 20)))}
                limits |= gpu() if kind == "whole" else gpu(held)
        elif kind == "dcu" and dcu_mib:
            held = min(some((20000, 40000)), dcu_mib)
            dcu_mib -= held
            share = {f"{name}-DCU-0": (held, 20, None, "hygon.com/dcunum")}
            limits |= {"hygon.com/dcunum": "1", "hygon.com/dcumem": str(held), "hygon.com/dcucores": "20"}
        elif kind == "shared" and "stranger" in obstacles:
            limits |= gpu()  # without a grant: nobody knows which GPU it has
        made = pod(f"{name}-{which}", limits, on=name, share=share, **more)
        if chance.random() < 0.1:
            owner = some(({"kind": "DaemonSet"}, {"kind": "Node"}))
            made["metadata"]["ownerReferences"] = [{**owner, "name": "o", "uid": "o", "controller": True}]
        if "port" in obstacles and chance.random() < 0.5:
            made["spec"]["containers"][0]["ports"] = [PORT]
        found.append(made)
    return found


ANNOTATIONS: tuple[Mapping[str, str], ...] = (
    {selectors.USE_GPUTYPE: "H100"},
    {selectors.USE_GPUTYPE: "A100"},
    {selectors.NOUSE_GPUTYPE: "T4"},
    {selectors.USE_GPUUUID: "n1-0"},
    {selectors.NOUSE_GPUUUID: "n1-0,n0-0,n2-0"},
    {selectors.NUMA_BIND: "true"},
    {selectors.VGPU_MODE: "mps"},
    {GPU_POLICY_ANNOTATION: "mutex"},
    {ENFORCEMENT_ANNOTATION: "required"},
    {selectors.USE_GPUTYPE: "A100", GPU_POLICY_ANNOTATION: "mutex"},
)


def _asked(chance: random.Random, kind: str, obstacles: frozenset[Obstacle]) -> dict[str, str]:
    """In the words that a node of this kind serves, little of each but where that is to be in the way."""
    some = chance.choice
    count = some(("2", "3")) if "gpus" in obstacles else "1"
    big = "gpu memory" in obstacles
    cores = {"nvidia.com/gpucores": some(("50", "90", "100"))} if "cores" in obstacles else {}
    match kind:
        case "dcu":
            compute = {} if "cores" in obstacles else {"hygon.com/dcucores": "20"}
            return {"hygon.com/dcunum": count, "hygon.com/dcumem": "70000" if big else "9000", **compute}
        case "cut" if "cores" in obstacles:
            return {"nvidia.com/mig-7g.40gb": count}
        case "cut":
            return {"nvidia.com/gpu": count, "nvidia.com/gpumem": some(("21000", "39000")) if big else "4000"}
        case "whole" | "aligned":
            return {"nvidia.com/gpu": count, **some(({}, cores))}
        case "plain":
            return {}
    memory = str(some((5, 7, 9)) if big else some((1, 2)))
    return some(
        (
            {"nvidia.com/gpu": count, "nvidia.com/gpumem": memory, **cores},
            {"nvidia.com/gpu": count, "nvidia.com/gpumem": memory, **cores},
            {"nvidia.com/gpu": count, "nvidia.com/gpumem": memory, **cores},
            {"nvidia.com/gpu": count, **cores},
            {"nvidia.com/gpu": count, "nvidia.com/gpumem-percentage": "70" if big else "20", **cores},
            {"volcano.sh/vgpu-number": count, "volcano.sh/vgpu-memory": memory},
            {"volcano.sh/gpu-memory": memory},
        )
    )


def _container(chance: random.Random, name: str, kind: str, obstacles: frozenset[Obstacle]) -> Raw:
    some = chance.choice
    limits = _asked(chance, kind, obstacles)
    limits |= {
        "cpu": str(some((2, 4, 9))) if "cpu" in obstacles or kind == "aligned" else "500m",
        "memory": some(("3Gi", "5Gi", "9Gi")) if "memory" in obstacles else "256Mi",
    }
    made: Raw = {"name": name, "image": "i", "resources": {"limits": limits, "requests": dict(limits)}}
    if "port" in obstacles:
        made["ports"] = [PORT]
    return made


def _waiting(chance: random.Random, kind: str, obstacles: frozenset[Obstacle]) -> Raw:
    some = chance.choice
    more: dict[str, Any] = {"containers": [_container(chance, "c", kind, obstacles)]}
    if "container" in obstacles:
        more["containers"].append(_container(chance, "d", kind, obstacles - {"port"}))
    if "init container" in obstacles:
        more["initContainers"] = [_container(chance, "i", kind, obstacles - {"port"})]
    if "selector" in obstacles:
        more["nodeSelector"] = some(({"zone": "z1"}, {"zone": "z1", "rack": "r3"}, {"zone": "z3", "rack": "r3"}))
    if "affinity" in obstacles:
        more["affinity"] = some((to_zone("z1"), to_zone("z3"), to_pods("podAffinity"), to_pods("podAntiAffinity")))
        more["labels"] = some(({}, {}, APP))
    if "spread" in obstacles:
        more["labels"] = APP
        selector = {"labelSelector": {"matchLabels": APP}, "whenUnsatisfiable": "DoNotSchedule"}
        policy = some(({}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}))
        more["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": some(("zone", "rack")), **selector, **policy}
        ]
    if "taint" in obstacles and chance.random() < 0.3:
        more["tolerations"] = [{"operator": "Exists", "key": "red"}]
    if "annotation" in obstacles:
        more["annotations"] = dict(some(ANNOTATIONS))
    return pod("p", {}, **more)
