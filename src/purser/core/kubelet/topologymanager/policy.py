"""What a topology manager policy is."""

from collections.abc import Callable, Sequence
from typing import Protocol

from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.topologymanager.merge import Factor

Merge = Callable[[Sequence[Factor]], Hint]
"""A merge of one generation, on one machine."""


class HintMerger(Protocol):
    """Merges hints, and decides whether the result will do."""

    @property
    def asks_for_hints(self) -> bool:
        """Whether managers are asked at all."""

    def merge(self, providers_hints: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """The merged hint, and whether a pod with it is admitted."""
