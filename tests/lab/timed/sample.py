"""A small cluster and its pods, drawn from a published trace, so dense that pods wait."""

import random
from collections import defaultdict

import numpy as np
from msgspec.structs import replace

from purser.core.fleet.facts import FleetNodeFacts
from purser.simulator.orders import find_speed
from purser.simulator.workload import Order, SimPod, SimWorkload
from tests.conformance.fgd import trace

NOBODY_IS_FIRST = 0
"""The rank of every node: among equals the first by name is taken, as live."""

_OF_SEVERAL_GPUS = 8
"""Every eighth pod wants several GPUs; of the trace's pods one in a hundred does."""


def draw(workload: str, seed: int, nodes: int, pods: int, load_percent: float) -> tuple[SimWorkload, Order]:
    """So many nodes, as many of each GPU model as there are, and so many pods with GPUs, at the trace's times, but so
    much faster that the load comes about.
    """
    lists = trace.lists(workload)
    drawn = random.Random(seed)
    come = _pods(lists.pods, pods, drawn)
    sample = SimWorkload(f"{workload} {seed}", _nodes(lists.nodes, nodes, drawn), come)
    times = np.array([pod.arrives_s for pod in come]) - come[0].arrives_s
    places = np.arange(pods)
    times = times / find_speed(sample, places, times, load_percent)
    return sample, Order(f"seed {seed}", seed, places, (NOBODY_IS_FIRST,) * nodes, times)


def _pods(listed: tuple[SimPod, ...], number: int, drawn: random.Random) -> tuple[SimPod, ...]:
    """In the order in which they come."""
    ones = [pod for pod in listed if pod.shape.gpu_count == 1 and pod.lasts_s]
    several = [pod for pod in listed if pod.shape.gpu_count > 1 and pod.lasts_s]
    large = min(number // _OF_SEVERAL_GPUS, len(several))
    chosen = map(_without_repeats, drawn.sample(several, large) + drawn.sample(ones, number - large))
    return tuple(sorted(chosen, key=lambda pod: (pod.arrives_s, pod.name)))


def _without_repeats(pod: SimPod) -> SimPod:
    """Some of the trace's pods name a model twice, which annotations of live pods do not tell apart."""
    models = tuple(dict.fromkeys(pod.shape.models))
    return replace(pod, shape=replace(pod.shape, models=models))


def _nodes(listed: tuple[FleetNodeFacts, ...], number: int, drawn: random.Random) -> tuple[FleetNodeFacts, ...]:
    """Of each model in turn one."""
    of_model = defaultdict(list)
    for node in listed:
        of_model[node.gpus[0].model].append(node)
    piles = [drawn.sample(of_model[model], len(of_model[model])) for model in sorted(of_model)]
    chosen: list[FleetNodeFacts] = []
    while len(chosen) < number:
        for pile in piles:
            if pile and len(chosen) < number:
                chosen.append(pile.pop())
    return tuple(sorted(chosen, key=lambda node: node.name))
