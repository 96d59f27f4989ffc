"""A workload that ships with Purser: made up, the same each time, and small enough to be simulated at once.

An afternoon of a cluster as companies have them: new nodes with eight GPUs and few CPUs for each, older ones with two
or four; shares for notebooks and inference that leave remainders, one-GPU jobs, now and then a job that wants a whole
node, and pods that must have one certain model.
"""

import random

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.model import WHOLE_MILLI
from purser.core.placement.shape import PodShape
from purser.simulator.workload import PODS_PER_NODE, SLOTS, SimPod, SimWorkload

SEED = 2026
PODS = 1000
HOURS = 2.5

_NODES = (
    # (how many, GPUs, model, CPUs, memory in GiB)
    (42, 8, "H100", 112, 1024),
    (48, 8, "A100", 96, 768),
    (36, 4, "A10", 64, 256),
    (60, 2, "T4", 48, 192),
)

_PODS = (
    # (weight, GPUs, thousandths of each, CPUs of each pod, memory in GiB, models, minutes it runs)
    (16, 1, 810, (4, 6), 24, (), 90),
    (12, 1, 470, (4, 8), 16, (), 120),
    (8, 1, 320, (2, 4), 12, (), 240),
    (6, 1, 650, (6, 10), 24, (), 60),
    (26, 1, 1000, (8, 12), 48, (), 300),
    (8, 1, 1000, (10, 14), 64, ("A100", "H100"), 420),
    (5, 1, 1000, (8, 12), 48, ("H100",), 420),
    (5, 1, 500, (4, 8), 16, ("T4",), 180),
    (4, 2, 1000, (16, 24), 128, (), 360),
    (2, 4, 1000, (32, 48), 256, (), 480),
    (2, 8, 1000, (64, 80), 512, ("A100", "H100"), 600),
    (6, 0, 0, (8, 16), 32, (), 60),
)


def workload() -> SimWorkload:
    """The demonstration's nodes and pods."""
    rng = random.Random(SEED)
    pods = sorted((_pod(rng, number) for number in range(PODS)), key=lambda pod: (pod.arrives_s, pod.name))
    return SimWorkload(
        "a made-up cluster", tuple(_nodes()), tuple(pods), ("The lists ship with Purser as its demonstration.",)
    )


def _nodes() -> list[FleetNodeFacts]:
    return [
        FleetNodeFacts(
            f"{model.lower()}-{number:03}",
            (GpuFacts(model, WHOLE_MILLI, SLOTS),) * gpus,
            1000 * cpus,
            1024 * memory_gib,
            PODS_PER_NODE,
        )
        for count, gpus, model, cpus, memory_gib in _NODES
        for number in range(count)
    ]


def _pod(rng: random.Random, number: int) -> SimPod:
    _, gpus, milli, cpus, memory_gib, models, minutes = rng.choices(_PODS, [kind[0] for kind in _PODS])[0]
    cpu_milli = 1000 * rng.randrange(cpus[0], cpus[1] + 1, 2)
    allowed = tuple(f"={model}" for model in models)
    shape = PodShape(cpu_milli, 1024 * memory_gib, gpus, milli, models=allowed)
    lasts_s = round(60 * minutes * rng.uniform(0.4, 1.6))
    return SimPod(f"pod-{number:04}", shape, float(rng.randrange(round(HOURS * 3600))), float(lasts_s))
