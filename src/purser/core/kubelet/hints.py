"""Topology hints: what a manager gives the topology manager for one resource of one container or pod."""

from collections.abc import Mapping

import msgspec

from purser.core.kubelet.masks import Mask


class Hint(msgspec.Struct, frozen=True, order=False):
    """NUMA nodes on which a request can be met."""

    mask: Mask | None
    """None: no preference, any node."""
    preferred: bool


ResourceHints = Mapping[str, tuple[Hint, ...] | None]
"""By resource: None means no preference, an empty tuple that the request cannot be met. The two differ."""

ProviderHints = ResourceHints | None
"""What one manager says; None or an empty mapping: no opinion."""

NO_AFFINITY = Hint(None, False)
"""What is known of a container that was never merged (kubelet's zero value)."""
