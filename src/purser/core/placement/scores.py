"""Scores of devices, by HAMi's formula (its policy/gpu_policy.go).

The shares of slots, compute and memory are summed, times ten. A device's score counts the request as if it were placed,
which is what HAMi's tests fix, although its production code never does so (it compares the vendor's name with the
model's).
"""

from collections.abc import Iterable

from purser.core.ledger import Usage
from purser.core.model import Device, DeviceRequest, ScoreWeights

EVEN_WEIGHTS = ScoreWeights()


def memory_needed_mib(request: DeviceRequest, device: Device) -> int:
    """What the request takes of this device's memory, percentages rounded down."""
    if request.memory_mib is not None:
        return request.memory_mib
    return device.memory_mib * (request.memory_percent or 0) // 100


def device_score(
    device: Device, used: Usage, requests: Iterable[DeviceRequest] = (), weights: ScoreWeights = EVEN_WEIGHTS
) -> float:
    """How full a device is with these requests on it; how many devices a request asks for does not matter."""
    if not (device.slots and device.cores_percent and device.memory_mib):
        return 0.0
    slots, cores, memory = used.slots, used.cores_percent, used.memory_mib
    for request in requests:
        slots += 1
        cores += request.cores_percent
        memory += memory_needed_mib(request, device)
    return 10 * (
        weights.slot * slots / device.slots
        + weights.core * cores / device.cores_percent
        + weights.memory * memory / device.memory_mib
    )
