"""Policies by name, as configuration, annotations and the simulator have them."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from purser.core.model import GpuPolicy as GpuPolicyName
from purser.core.model import NodePolicy as NodePolicyName
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
    """What the name of a node policy stands for."""

    make: Callable[[Setting], ArrayNodePolicy]
    gpus: GpuPolicyName = GpuPolicyName.BEST_FIT
    """The GPU policy used where none is named: in the simulator. The scheduler always has one."""


NODE_POLICIES: dict[NodePolicyName, NamedNodes] = {
    NodePolicyName.RANDOM: NamedNodes(lambda setting: RandomNodes(setting.seed), GpuPolicyName.RANDOM),
    NodePolicyName.BINPACK: NamedNodes(lambda _: BinpackNodes(), GpuPolicyName.BINPACK),
    NodePolicyName.SPREAD: NamedNodes(lambda _: SpreadNodes(), GpuPolicyName.SPREAD),
    NodePolicyName.BEST_FIT: NamedNodes(lambda _: BestFitNodes()),
    NodePolicyName.DOT_PRODUCT: NamedNodes(lambda _: DotProductNodes()),
    NodePolicyName.PACKING: NamedNodes(lambda _: PackingNodes()),
    NodePolicyName.CLUSTERING: NamedNodes(lambda _: ClusteringNodes()),
    NodePolicyName.FRAGMENTATION: NamedNodes(_fragmentation, GpuPolicyName.FRAGMENTATION),
    NodePolicyName.PURSER: NamedNodes(_purser, GpuPolicyName.PURSER),
}

GPU_POLICIES: dict[GpuPolicyName, Callable[[Setting], ArrayGpuPolicy]] = {
    GpuPolicyName.RANDOM: lambda setting: random_gpus(setting.seed),
    GpuPolicyName.BINPACK: lambda _: BINPACK_GPUS,
    GpuPolicyName.SPREAD: lambda _: SPREAD_GPUS,
    GpuPolicyName.BEST_FIT: lambda _: BEST_FIT_GPUS,
    GpuPolicyName.FRAGMENTATION: _fragmentation,
    GpuPolicyName.PURSER: _purser,
    GpuPolicyName.TOPOLOGY_AWARE: lambda _: TopologyGpus(),
}

WHOLE_POLICIES: dict[GpuPolicyName, Callable[[Setting], ArrayPolicy]] = {
    GpuPolicyName.FRAGMENTATION: _fragmentation,
    GpuPolicyName.PURSER: _purser,
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
        node, gpu = NodePolicyName.BEST_FIT, gpu or GpuPolicyName.TOPOLOGY_AWARE
    parts = node_policies(node)
    name = parts[0][0] if len(parts) == 1 else None
    word = _gpu_word(gpu) if gpu else NODE_POLICIES[name].gpus if name else GpuPolicyName.BEST_FIT
    if name is not None and name.value == word.value and word in WHOLE_POLICIES:
        return WHOLE_POLICIES[word](setting)
    return NodeAndGpuPolicy(_nodes(parts, setting), GPU_POLICIES[word](setting))


def named_policy(words: str) -> tuple[str, GpuPolicyName]:
    """The halves of a policy as `parse_policy` reads it, as settings have them. Raises ValueError."""
    parse_policy(words)
    node, _, gpu = words.partition("/")
    node, gpu = node.strip(), gpu.strip()
    if node == "topology":
        return NodePolicyName.BEST_FIT, _gpu_word(gpu) if gpu else GpuPolicyName.TOPOLOGY_AWARE
    parts = node_policies(node)
    own = NODE_POLICIES[parts[0][0]].gpus if len(parts) == 1 else GpuPolicyName.BEST_FIT
    return canonical_node_policy(node), _gpu_word(gpu) if gpu else own


def parse_policy(words: str, setting: Setting = _DEFAULTS) -> ArrayPolicy:
    """A policy by its name: ``best-fit``, ``fragmentation=3,spread=1`` (weighed), ``best-fit/spread`` (the GPUs by
    another one). Raises ValueError.
    """
    node, slash, gpu = words.partition("/")
    if slash and not gpu:
        raise ValueError(f"policy {words!r} has no GPU policy after the slash")
    return policy(node.strip(), gpu.strip(), setting)


def _gpu_word(text: str) -> GpuPolicyName:
    words = gpu_policies(text)
    if len(words) > 1 or words[0] not in GPU_POLICIES:
        names = ", ".join(sorted(GPU_POLICIES))
        raise ValueError(f"{text!r} is not a single policy that chooses GPUs: must be one of {names}")
    return words[0]


def _nodes(parts: tuple[tuple[NodePolicyName, float], ...], setting: Setting) -> ArrayNodePolicy:
    made = tuple((NODE_POLICIES[name].make(setting), weight) for name, weight in parts)
    return made[0][0] if len(made) == 1 else WeightedNodes(made)
