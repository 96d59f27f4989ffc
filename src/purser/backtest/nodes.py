"""Nodes of which only numbers are known: how many GPUs, of which model, with how much memory."""

from purser.core.device.ids import MAX_NODE_DEVICES, MAX_SLOTS
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY, NO_LIMIT, FreeResources
from purser.core.model import WHOLE_MILLI

UNKNOWN_MODEL = "GPU"


def counted_node(name: str, gpus: int, model: str, memory_mib: int, free: FreeResources = NO_LIMIT) -> FleetNodeFacts:
    """Such a node with equal GPUs, each with as many slots as a GPU can have. Without their memory a GPU has 1000 MiB:
    pods that ask for whole GPUs fit as they do."""
    memory = memory_mib if 0 < memory_mib <= MANY else WHOLE_MILLI
    each = GpuFacts(model[:128] or UNKNOWN_MODEL, memory, MAX_SLOTS)
    number = max(0, min(gpus, MAX_NODE_DEVICES))
    cpu_milli, memory_mib, pods = (
        max(0, amount) for amount in (free.cpu_free_milli, free.memory_free_mib, free.pods_free)
    )
    return FleetNodeFacts(name, (each,) * number, cpu_milli, memory_mib, pods)
