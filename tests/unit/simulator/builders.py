"""Small workloads, a line each."""

import numpy as np

from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.placement.shape import PodShape
from purser.simulator import demo
from purser.simulator.workload import SLOTS, Order, SimPod, SimWorkload


def node(
    name: str, gpus: int = 1, model: str = "A", cpu_milli: int = 64_000, memory_mib: int = 1 << 20
) -> FleetNodeFacts:
    return FleetNodeFacts(name, (GpuFacts(model, 1000, SLOTS),) * gpus, cpu_milli, memory_mib, 1001)


def share(milli: int, cpu_milli: int = 1000) -> PodShape:
    return PodShape(cpu_milli, 1024, 1, milli)


def whole(gpus: int, cpu_milli: int = 1000, models: tuple[str, ...] = ()) -> PodShape:
    return PodShape(cpu_milli, 1024, gpus, 1000, models=tuple(f"={model}" for model in models))


NO_GPU = PodShape(1000, 1024)


def workload(nodes: list[FleetNodeFacts], shapes: list[PodShape]) -> SimWorkload:
    return SimWorkload("test", tuple(nodes), tuple(SimPod(f"p{n}", shape) for n, shape in enumerate(shapes)))


def timed(nodes: list[FleetNodeFacts], pods: list[tuple[float, float, PodShape]]) -> SimWorkload:
    """Pods as (arrives, lasts, shape)."""
    return SimWorkload(
        "test", tuple(nodes), tuple(SimPod(f"p{n}", shape, at, lasts) for n, (at, lasts, shape) in enumerate(pods))
    )


def as_listed(of: SimWorkload) -> Order:
    """All pods in the order of the list, nodes as well."""
    return Order("as listed", 0, np.arange(len(of.pods)), tuple(range(len(of.nodes))))


def small_demo() -> SimWorkload:
    """A sixth of the demonstration: nodes and pods of all its kinds."""
    whole = demo.workload()
    return SimWorkload(whole.title, whole.nodes[::6], whole.pods[::6], whole.notes)
