"""Policies by name, as configuration, annotations and the simulator have them."""

from collections.abc import Callable

from purser.core.placement.policies.best_fit import BEST_FIT_GPUS, BestFitNodes
from purser.core.placement.policies.binpack import BINPACK_GPUS, SPREAD_GPUS, BinpackNodes, SpreadNodes
from purser.core.placement.policies.clustering import ClusteringNodes
from purser.core.placement.policies.dot_product import DotProductNodes
from purser.core.placement.policies.fragmentation import Fragmentation
from purser.core.placement.policies.packing import PackingNodes
from purser.core.placement.policies.pair import Pair
from purser.core.placement.policies.protocol import GpuPolicy, NodePolicy, Policy, Setting
from purser.core.placement.policies.purser import Purser
from purser.core.placement.policies.random import RandomNodes, random_gpus
from purser.core.placement.policies.topology import TopologyGpus
from purser.core.placement.policies.weighted import WeightedNodes

NODE_POLICIES: dict[str, Callable[[Setting], NodePolicy]] = {
    "random": lambda setting: RandomNodes(setting.seed),
    "binpack": lambda _: BinpackNodes(),
    "spread": lambda _: SpreadNodes(),
    "best-fit": lambda _: BestFitNodes(),
    "dot-product": lambda _: DotProductNodes(),
    "packing": lambda _: PackingNodes(),
    "clustering": lambda _: ClusteringNodes(),
    "fragmentation": lambda setting: Fragmentation(setting.mix),
    "purser": lambda setting: Purser(setting.mix),
}

GPU_POLICIES: dict[str, Callable[[Setting], GpuPolicy]] = {
    "random": lambda setting: random_gpus(setting.seed),
    "binpack": lambda _: BINPACK_GPUS,
    "spread": lambda _: SPREAD_GPUS,
    "best-fit": lambda _: BEST_FIT_GPUS,
    "fragmentation": lambda setting: Fragmentation(setting.mix),
    "purser": lambda setting: Purser(setting.mix),
    "topology": lambda _: TopologyGpus(),
}

WHOLE_POLICIES: dict[str, Callable[[Setting], Policy]] = {
    "fragmentation": lambda setting: Fragmentation(setting.mix),
    "purser": lambda setting: Purser(setting.mix),
}
"""Those that choose the node for the sake of the GPU."""


_UNTOLD = Setting()


def policy(node: str, gpu: str = "", setting: Setting = _UNTOLD) -> Policy:
    """A policy by the names of its halves; ``node`` may weigh several: ``fragmentation=3,spread=1``.

    Without a name for GPUs: the policy's own way, or best fit. Raises ValueError for a name that there is none of, or a
    weight that is no positive number.
    """
    gpu = gpu or (node if node in GPU_POLICIES else "best-fit")
    if gpu not in GPU_POLICIES:
        raise ValueError(f"no policy for GPUs is called {gpu!r}: there are {', '.join(sorted(GPU_POLICIES))}")
    if node == gpu and node in WHOLE_POLICIES:
        return WHOLE_POLICIES[node](setting)
    if node == "topology":
        node = "best-fit"
    return Pair(_nodes(node, setting), GPU_POLICIES[gpu](setting))


def _nodes(words: str, setting: Setting) -> NodePolicy:
    parts = tuple(_part(word, setting) for word in words.split(","))
    return parts[0][0] if len(parts) == 1 else WeightedNodes(parts)


def _part(word: str, setting: Setting) -> tuple[NodePolicy, float]:
    name, _, weight = word.strip().partition("=")
    if name not in NODE_POLICIES:
        raise ValueError(f"no policy for nodes is called {name!r}: there are {', '.join(sorted(NODE_POLICIES))}")
    try:
        value = float(weight or "1")
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ValueError(f"the weight of policy {name!r} is {weight!r}: it must be a number above 0")
    return NODE_POLICIES[name](setting), value
