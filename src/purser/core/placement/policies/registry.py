"""Policies by name, as configuration, annotations and the simulator have them."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from purser.core.model import GpuPolicy as GpuWord
from purser.core.model import NodePolicy as NodeWord
from purser.core.placement.mix import Mix, MixSource
from purser.core.placement.policies.best_fit import BEST_FIT_GPUS, BestFitNodes
from purser.core.placement.policies.binpack import BINPACK_GPUS, SPREAD_GPUS, BinpackNodes, SpreadNodes
from purser.core.placement.policies.clustering import ClusteringNodes
from purser.core.placement.policies.dot_product import DotProductNodes
from purser.core.placement.policies.fragmentation import Fragmentation
from purser.core.placement.policies.packing import PackingNodes
from purser.core.placement.policies.pair import NodeAndGpuPolicy
from purser.core.placement.policies.protocol import ArrayGpuPolicy, ArrayNodePolicy, ArrayPolicy
from purser.core.placement.policies.purser import Planner, Purser
from purser.core.placement.policies.random import RandomNodes, random_gpus
from purser.core.placement.policies.topology import TopologyGpus
from purser.core.placement.policies.weighted import WeightedNodes
from purser.core.policy.words import canonical_node_policy, gpu_policies, node_policies


class Setting(msgspec.Struct, frozen=True):
    """Additional inputs of some policies."""

    mix: MixSource = Mix()
    """The mix of pods to expect."""
    seed: int = 0
    """Of those that choose at random."""
    planner: Planner | None = None
    """Of this mix, where policies share one."""


def _fragmentation(setting: Setting) -> Fragmentation:
    return Fragmentation(setting.mix)


def _purser(setting: Setting) -> Purser:
    return Purser(setting.planner or Planner(setting.mix))


class NamedNodes(NamedTuple):
    """What a word for nodes stands for."""

    make: Callable[[Setting], ArrayNodePolicy]
    gpus: GpuWord = GpuWord.BEST_FIT
    """The GPU policy used where none is named: in the simulator. The scheduler always has one."""


NODE_POLICIES: dict[NodeWord, NamedNodes] = {
    NodeWord.RANDOM: NamedNodes(lambda setting: RandomNodes(setting.seed), GpuWord.RANDOM),
    NodeWord.BINPACK: NamedNodes(lambda _: BinpackNodes(), GpuWord.BINPACK),
    NodeWord.SPREAD: NamedNodes(lambda _: SpreadNodes(), GpuWord.SPREAD),
    NodeWord.BEST_FIT: NamedNodes(lambda _: BestFitNodes()),
    NodeWord.DOT_PRODUCT: NamedNodes(lambda _: DotProductNodes()),
    NodeWord.PACKING: NamedNodes(lambda _: PackingNodes()),
    NodeWord.CLUSTERING: NamedNodes(lambda _: ClusteringNodes()),
    NodeWord.FRAGMENTATION: NamedNodes(_fragmentation, GpuWord.FRAGMENTATION),
    NodeWord.PURSER: NamedNodes(_purser, GpuWord.PURSER),
}

GPU_POLICIES: dict[GpuWord, Callable[[Setting], ArrayGpuPolicy]] = {
    GpuWord.RANDOM: lambda setting: random_gpus(setting.seed),
    GpuWord.BINPACK: lambda _: BINPACK_GPUS,
    GpuWord.SPREAD: lambda _: SPREAD_GPUS,
    GpuWord.BEST_FIT: lambda _: BEST_FIT_GPUS,
    GpuWord.FRAGMENTATION: _fragmentation,
    GpuWord.PURSER: _purser,
    GpuWord.TOPOLOGY_AWARE: lambda _: TopologyGpus(),
}

WHOLE_POLICIES: dict[GpuWord, Callable[[Setting], ArrayPolicy]] = {
    GpuWord.FRAGMENTATION: _fragmentation,
    GpuWord.PURSER: _purser,
}
"""Those that choose the node for the sake of the GPU."""

_DEFAULTS = Setting()


def policy(node: str, gpu: str = "", setting: Setting = _DEFAULTS) -> ArrayPolicy:
    """A policy by the names of its halves, as `purser.core.policy.words` reads them: ``node`` may weigh several.

    Without a name for GPUs: the policy's own way, or best fit where several are weighed; ``topology`` is best fit for
    nodes and topology for GPUs. Raises ValueError for a name that there is none of, a weight that makes no sense, and
    words for GPUs that are no policy over arrays: those that filter, and chains.
    """
    if node == "topology":
        node, gpu = NodeWord.BEST_FIT, gpu or GpuWord.TOPOLOGY_AWARE
    parts = node_policies(node)
    name = parts[0][0] if len(parts) == 1 else None
    word = _gpu_word(gpu) if gpu else NODE_POLICIES[name].gpus if name else GpuWord.BEST_FIT
    if name is not None and name.value == word.value and word in WHOLE_POLICIES:
        return WHOLE_POLICIES[word](setting)
    return NodeAndGpuPolicy(_nodes(parts, setting), GPU_POLICIES[word](setting))


def named_policy(words: str) -> tuple[str, GpuWord]:
    """The halves of a policy as `parse_policy` reads it, as settings have them. Raises ValueError."""
    parse_policy(words)
    node, _, gpu = words.partition("/")
    node, gpu = node.strip(), gpu.strip()
    if node == "topology":
        return NodeWord.BEST_FIT, _gpu_word(gpu) if gpu else GpuWord.TOPOLOGY_AWARE
    parts = node_policies(node)
    own = NODE_POLICIES[parts[0][0]].gpus if len(parts) == 1 else GpuWord.BEST_FIT
    return canonical_node_policy(node), _gpu_word(gpu) if gpu else own


def parse_policy(words: str, setting: Setting = _DEFAULTS) -> ArrayPolicy:
    """A policy by its name: ``best-fit``, ``fragmentation=3,spread=1`` (weighed), ``best-fit/spread`` (the GPUs by
    another one). Raises ValueError.
    """
    node, slash, gpu = words.partition("/")
    if slash and not gpu:
        raise ValueError(f"policy {words!r} does not name a policy for GPUs after /")
    return policy(node.strip(), gpu.strip(), setting)


def _gpu_word(text: str) -> GpuWord:
    words = gpu_policies(text)
    if len(words) > 1 or words[0] not in GPU_POLICIES:
        names = ", ".join(sorted(GPU_POLICIES))
        raise ValueError(f"{text!r} is not a single policy that chooses GPUs: must be one of {names}")
    return words[0]


def _nodes(parts: tuple[tuple[NodeWord, float], ...], setting: Setting) -> ArrayNodePolicy:
    made = tuple((NODE_POLICIES[name].make(setting), weight) for name, weight in parts)
    return made[0][0] if len(made) == 1 else WeightedNodes(made)
