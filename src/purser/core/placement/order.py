"""In which order a node's devices are preferred.

HAMi sorts ascending and takes from the end; here every key ascends from the most preferred, with the same outcome. The
last key is the device's position among its node's, highest first, so that ties always fall the same way.

How full a device is, is scored by HAMi's formula (its policy/gpu_policy.go): the shares of slots, compute and memory
are summed, times ten. A device's score counts the request as if it were placed, which is what HAMi's tests fix,
although its production code never does so (it compares the vendor's name with the model's).
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from purser.core.ledger import Usage
from purser.core.model import Device, DeviceShare, GpuPolicy, ScoreWeights
from purser.core.policy.words import STAND_INS

Key = tuple[float, ...]


class Candidate(msgspec.Struct, frozen=True):
    """A device as a policy sees it."""

    position: int
    """Among the node's devices, by index and uuid."""
    score: float
    numa: int
    used_slots: int


def numa_nodes(device: Device) -> tuple[int, ...]:
    """A device's NUMA nodes; node 0 where none is known, as on machines with only one."""
    return device.numa_nodes or (0,)


_WORDS: dict[GpuPolicy, Callable[[Candidate], float]] = {
    GpuPolicy.BINPACK: lambda c: -c.score,
    GpuPolicy.SPREAD: lambda c: c.score,
    GpuPolicy.NUMA: lambda c: -c.numa,
}
"""The words of a chain that order; the others only filter or choose."""


_ALONE: dict[GpuPolicy, Callable[[Candidate], Key]] = {
    GpuPolicy.NUMA: lambda c: (-c.numa, -c.position),
    GpuPolicy.MUTEX: lambda c: (c.used_slots, -c.numa, -c.position),
    GpuPolicy.BINPACK: lambda c: (-c.score, -c.numa, -c.position),
    GpuPolicy.SPREAD: lambda c: (c.score, -c.numa, -c.position),
    GpuPolicy.TOPOLOGY_AWARE: lambda c: (c.score, -c.numa, -c.position),
}
"""Of a word by itself. Topology-aware chooses among what it is given, and is given what spread prefers first."""

_BOUND: dict[GpuPolicy, Callable[[Candidate], Key]] = _ALONE | {
    GpuPolicy.BINPACK: lambda c: (c.numa, -c.score, -c.position),
    GpuPolicy.SPREAD: lambda c: (-c.numa, c.score, -c.position),
    GpuPolicy.TOPOLOGY_AWARE: lambda c: (-c.numa, c.score, -c.position),
}
"""The same where the devices have to be on one NUMA node."""


def order_key(policy: Sequence[GpuPolicy], numa_bind: bool) -> Callable[[Candidate], Key]:
    """The sort key of a policy or chain, smallest for the device to take first.

    For what goes by the fleet as arrays another word stands in here (`STAND_INS`), where no arrays are at hand.
    """
    words = [STAND_INS.get(word, word) for word in policy]
    return (_BOUND if numa_bind else _ALONE)[words[0]] if len(words) == 1 else _build_key(words, numa_bind)


def _build_key(policy: Sequence[GpuPolicy], numa_bind: bool) -> Callable[[Candidate], Key]:
    words = [_WORDS[word] for word in policy if word in _WORDS] or [_WORDS[GpuPolicy.SPREAD]]
    if numa_bind:
        words.insert(0, _WORDS[GpuPolicy.NUMA])
    return lambda c: (*(word(c) for word in words), -c.position)


EVEN_WEIGHTS = ScoreWeights()


def device_score(
    device: Device, used: Usage, shares: Iterable[DeviceShare] = (), weights: ScoreWeights = EVEN_WEIGHTS
) -> float:
    """How full a device is with these shares of it taken, too."""
    if not (device.slots and device.cores_percent and device.memory_mib):
        return 0.0
    slots, cores, memory = used.slots, used.cores_percent, used.memory_mib
    for share in shares:
        slots += 1
        cores += share.cores_percent
        memory += share.memory_mib
    return 10 * (
        weights.slot * slots / device.slots
        + weights.core * cores / device.cores_percent
        + weights.memory * memory / device.memory_mib
    )
