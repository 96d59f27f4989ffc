"""Policy restricted: a pod whose best alignment is not a preferred one is refused."""

from collections.abc import Sequence

import msgspec

from purser.core.kubelet.hints import Hint, ProviderHints
from purser.core.kubelet.topologymanager.merge import factors_of
from purser.core.kubelet.topologymanager.policy import Merge


class RestrictedPolicy(msgspec.Struct, frozen=True):
    """Aligns as narrowly as the hardware could, or not at all."""

    merge_factors: Merge
    asks_for_hints: bool = True

    def merge(self, providers_hints: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """The best hint, admitted if it is preferred."""
        merged = self.merge_factors(factors_of(providers_hints))
        return merged, merged.preferred
