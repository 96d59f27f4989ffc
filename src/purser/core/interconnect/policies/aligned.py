"""aligned: what Purser uses itself: best-effort, and what go-gpuallocator lacks.

- One GPU: the original takes the first one, so that single-GPU pods take one GPU of each NVLink pair and later pairs
  get none (NVIDIA/k8s-device-plugin issues 546 and 1193). Here the GPU goes whose best partner is the least loss, then
  the second best, and so on: a lone GPU before a pair is broken, a broken group before a whole one.
- Shares: GPUs that are already open are taken before idle ones, so that idle groups stay whole. If there are enough of
  them the set is chosen among them (for one GPU: the first of them); if not, it has them all.
"""

from purser.core.interconnect.ask import NO_SET, Ask, GpuSet
from purser.core.interconnect.policies.best_effort import best_effort
from purser.core.interconnect.topology import Topology


def aligned(topology: Topology, ask: Ask) -> GpuSet:
    """The set that fits best and harms later requests least."""
    if not ask.possible:
        return NO_SET
    opened = _open_partitions(ask)
    if len(opened) >= ask.size:
        return best_effort(topology, Ask(opened, ask.size, ask.required))
    if ask.size == 1:
        return GpuSet((_least_loss(topology, ask.available),))
    return best_effort(topology, Ask(ask.available, ask.size, opened))


def _open_partitions(ask: Ask) -> tuple[int, ...]:
    """What is open already, or is going to be because it is required."""
    return tuple(place for place in ask.available if place in ask.opened or place in ask.required)


def _least_loss(topology: Topology, available: tuple[int, ...]) -> int:
    def partners(place: int) -> list[int]:
        row = topology.scores[place]
        return sorted((row[other] for other in available if other != place), reverse=True)

    return min(available, key=partners)
