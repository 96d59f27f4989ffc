"""Drawn fleets as small teams have them, and pods for them: a few nodes, shares beside whole GPUs, one model or two."""

import random

import msgspec

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY
from purser.core.placement.shape import PodShape
from purser.simulator.workload import SimPod, SimWorkload

SIZES = ((8,), (4,), (2,), (4, 8), (1, 2, 4), (1, 2, 4, 8))
SHARES = ((100, 200, 250, 300, 400, 500), (810, 470, 320, 650, 230, 160), (250, 500), (333, 500, 400))
WHOLE = ((1, 4.0), (2, 1.5), (4, 0.7), (8, 0.3))
"""(GPUs, how frequent)."""
CPU_PER_GPU_MILLI = 12_000
GPU_MILLI = 1000


def draw(seed: int) -> SimWorkload:
    """A fleet of 2 to 20 nodes and six times as many pods as it has GPUs, which ask for 90 percent of it at a time."""
    drawn = random.Random(seed)
    nodes = _nodes(drawn)
    gpus = sum(len(node.gpus) for node in nodes)
    kinds = _kinds(drawn, max(len(node.gpus) for node in nodes))
    pods = [_pod(drawn, number, kinds) for number in range(max(60, 6 * gpus))]
    hours = sum(pod.shape.gpu_count * pod.shape.gpu_memory_mib / GPU_MILLI * (pod.lasts_s or 0) for pod in pods)
    span_s = hours / (0.9 * gpus)
    timed = [msgspec.structs.replace(pod, arrives_s=drawn.uniform(0, span_s)) for pod in pods]
    return SimWorkload(f"fleet {seed}", nodes, tuple(timed))


def _nodes(drawn: random.Random) -> tuple[FleetNodeFacts, ...]:
    sizes, cpu_counts = drawn.choice(SIZES), drawn.random() < 0.7
    nodes = []
    for number in range(drawn.choice((2, 3, 4, 6, 8, 12, 16, 20))):
        gpus = drawn.choice(sizes)
        cpu = round(CPU_PER_GPU_MILLI * gpus * drawn.choice((1, 1.5))) if cpu_counts else MANY
        nodes.append(FleetNodeFacts(f"node-{number:02}", (GpuFacts("A100", GPU_MILLI, 1000),) * gpus, cpu))
    return tuple(nodes)


def _kinds(drawn: random.Random, largest: int) -> list[tuple[float, int, int]]:
    """(how frequent, GPUs, thousandths of each)."""
    whole = [(often * drawn.choice((0.5, 1, 2)), gpus, GPU_MILLI) for gpus, often in WHOLE if gpus <= largest]
    sizes = drawn.choice(SHARES)
    shares = [(float(drawn.choice((1, 2, 4))), 1, drawn.choice(sizes)) for _ in range(drawn.randint(1, 5))]
    return drawn.choice((whole, shares, whole + shares, whole + shares))


def _pod(drawn: random.Random, number: int, kinds: list[tuple[float, int, int]]) -> SimPod:
    _, gpus, milli = drawn.choices(kinds, [kind[0] for kind in kinds])[0]
    cpu = round(CPU_PER_GPU_MILLI * gpus * milli / GPU_MILLI * drawn.choice((0.4, 0.7, 1.0)))
    lasts_s = 60 + drawn.expovariate(1 / 3600)
    return SimPod(f"pod-{number}", PodShape(cpu, 0, gpus, gpu_memory_mib=milli), 0.0, lasts_s)
