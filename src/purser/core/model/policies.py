"""The words of placement policies, of which `purser.core.policy` makes a pod's."""

from enum import StrEnum

import msgspec


class NodePolicy(StrEnum):
    """Which of the nodes that fit is best; several can be weighed (`purser.core.policy.words`)."""

    RANDOM = "random"
    BINPACK = "binpack"
    SPREAD = "spread"
    BEST_FIT = "best-fit"
    DOT_PRODUCT = "dot-product"
    PACKING = "packing"
    CLUSTERING = "clustering"
    FRAGMENTATION = "fragmentation"
    PURSER = "purser"


class GpuPolicy(StrEnum):
    """One word of the chain that orders, filters or names a node's devices."""

    BINPACK = "binpack"
    SPREAD = "spread"
    MUTEX = "mutex"
    NUMA = "numa"
    TOPOLOGY_AWARE = "topology-aware"
    RANDOM = "random"
    BEST_FIT = "best-fit"
    FRAGMENTATION = "fragmentation"
    PURSER = "purser"


class ScoreWeights(msgspec.Struct, frozen=True):
    """Weights of slots, compute and memory in a device's score."""

    slot: int = 1
    core: int = 1
    memory: int = 1
