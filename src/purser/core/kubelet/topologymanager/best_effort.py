"""Policy best-effort: the best alignment there is, and every pod is admitted."""

from collections.abc import Sequence

import msgspec

from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.topologymanager.merge import factors_of
from purser.core.kubelet.topologymanager.policy import Merge


class BestEffortPolicy(msgspec.Struct, frozen=True):
    """Aligns where it can."""

    merge_factors: Merge
    asks_for_hints: bool = True

    def merge(self, providers_hints: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """The best hint, admitted."""
        return self.merge_factors(factors_of(providers_hints)), True
