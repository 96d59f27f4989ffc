"""Policy single-numa-node: everything from one NUMA node, or the pod is refused."""

from collections.abc import Sequence

import msgspec

from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.masks import Mask
from purser.core.kubelet.topologymanager.merge import Factor, factors_of
from purser.core.kubelet.topologymanager.policy import Merge


class SingleNumaNodePolicy(msgspec.Struct, frozen=True):
    """Aligns to one node."""

    merge_factors: Merge
    nodes: Mask
    """All NUMA nodes of the machine."""
    asks_for_hints: bool = True

    def merge(self, providers_hints: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """The best hint of one node, admitted if there is one.

        A hint that names all nodes becomes one without a mask: so it does on a machine with a single node, where
        devices then count as not aligned.
        """
        merged = self.merge_factors(single_node_hints(factors_of(providers_hints)))
        if merged.mask == self.nodes:
            merged = Hint(None, merged.preferred)
        return merged, merged.preferred


def single_node_hints(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """Only the hints that are preferred and name one node or none in particular (filterSingleNumaHints)."""
    return tuple(tuple(filter(_is_single, factor)) for factor in factors)


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)
