"""Scores of devices and nodes, by HAMi's formulas (its policy/gpu_policy.go and node_policy.go).

Both sum the shares of slots, compute and memory, times ten. A device's score counts the request as if it were placed,
which is what HAMi's tests fix, although its production code never does so (it compares the vendor's name with the
model's). A node's score is of its state before the request.
"""

from collections.abc import Iterable

from purser.core.fleet import DeviceState, NodeState
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


def node_score(node: NodeState) -> float:
    """How full a node is, 0 (empty, or nothing to fill) to 30."""
    return 10 * (
        _share((s.usage.slots, s.device.slots) for s in node.devices)
        + _share((s.usage.cores_percent, s.device.cores_percent) for s in node.devices)
        + _share((s.usage.memory_mib, s.device.memory_mib) for s in node.devices)
        if _all_positive(node.devices)
        else 0.0
    )


def _all_positive(states: Iterable[DeviceState]) -> bool:
    totals = [(s.device.slots, s.device.cores_percent, s.device.memory_mib) for s in states]
    return all(sum(column) > 0 for column in zip(*totals, strict=True)) if totals else False


def _share(pairs: Iterable[tuple[int, int]]) -> float:
    used = total = 0
    for taken, capacity in pairs:
        used += taken
        total += capacity
    return used / total
