"""What is free of a node beside its GPUs: CPU, memory and pods, as kube-scheduler counts them."""

import msgspec

from purser.core.pod.requests import EffectiveRequests

MANY = 1 << 30
"""Of what is not limited; nothing counts for more, so that no sum leaves the arrays' integers."""


class FreeResources(msgspec.Struct, frozen=True, gc=False):
    """What a node has left, or what it has at all."""

    cpu_free_milli: int = MANY
    memory_free_mib: int = MANY
    pods_free: int = MANY

    def less(self, taken: EffectiveRequests, pods: int) -> "FreeResources":
        """What so many pods leave that take so much together. Of what is not limited there is always as much; where
        they take more than there is, nothing is left.
        """
        return FreeResources(
            _left(self.cpu_free_milli, taken.cpu_milli),
            _left(self.memory_free_mib, taken.memory_mib),
            _left(self.pods_free, pods),
        )


NO_LIMIT = FreeResources()
"""For a node whose resources are not known."""


def _left(free: int, taken: int) -> int:
    return MANY if free >= MANY else max(free - taken, 0)
