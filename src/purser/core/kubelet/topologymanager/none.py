"""Policy none: no hints, every pod is admitted."""

from collections.abc import Sequence

import msgspec

from purser.core.kubelet.hints import NO_AFFINITY, Hint, ProviderHints


class NonePolicy(msgspec.Struct, frozen=True):
    """Aligns nothing."""

    asks_for_hints: bool = False

    def merge(self, providers_hints: Sequence[ProviderHints]) -> tuple[Hint, bool]:
        """No affinity, admitted."""
        return NO_AFFINITY, True
