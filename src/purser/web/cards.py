"""What the pages count as a GPU, and what they say of its health.

A GPU counts once, whole or cut into MIG devices: its health is the gravest of its own and theirs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from purser.core.device.resources import MIG_PREFIX, SHARED_SUFFIX
from purser.core.names import AGENT_AWAY, AGENT_STOPPING
from purser.core.state import StateGpu, StateGpuHealth, StateNode


class Health(StrEnum):
    """As the state document has it, and two words more. The gravest comes first."""

    UNHEALTHY = "Unhealthy"
    DISPUTED = "Disputed"
    PAUSED = "Paused"
    """Nothing is known to be wrong with it: its node's agent is being restarted or gone (nothing says since when), or
    kubelet lists none of its devices."""
    CORDONED = "Cordoned"
    DEGRADED = "Degraded"
    """It takes new pods, and has a problem."""
    HEALTHY = "Healthy"


_PAUSES = frozenset({AGENT_STOPPING, AGENT_AWAY})
# Members of an enumeration are slow to look up, and there are a hundred thousand GPUs to count.
_HEALTHY, _ALSO_HEALTHY = StateGpuHealth.HEALTHY, Health.HEALTHY
_TAKE_PODS = (_ALSO_HEALTHY, Health.DEGRADED)
_GRAVITY: Mapping[Health, int] = {health: place for place, health in enumerate(Health)}


@dataclass(frozen=True)
class Card:
    """A GPU: what its node lists of it."""

    uuid: str
    devices: Sequence[StateGpu]
    """The GPU, its MIG devices, or both."""
    health: Health
    """Also for the node being cordoned."""
    own_health: Health
    """Whatever the node is."""

    @property
    def cores(self) -> tuple[int, int]:
        """How much of its compute is held, and how much there is: each MIG device has 100% of itself."""
        held = sum(gpu.cores_held_percent for gpu in self.devices)
        total = sum(gpu.cores_percent for gpu in self.devices)
        most = max(gpu.cores_percent for gpu in self.devices)
        return (held * most // total if total else held), most


def cards_of(node: StateNode) -> list[Card]:
    """A node's GPUs, in the order of the document."""
    devices: dict[str, list[StateGpu]] = {}
    for gpu in node.gpus:
        devices.setdefault(card_uuid(gpu), []).append(gpu)
    return [_card(node, uuid, members) for uuid, members in devices.items()]


def card_uuid(gpu: StateGpu) -> str:
    """uuid of the GPU that a device is, or is a part of."""
    return gpu.parent or gpu.uuid


def has_parts(node: StateNode) -> bool:
    """Whether it lists MIG devices: otherwise each device that it lists is a GPU, which is counted faster."""
    return any(gpu.parent for gpu in node.gpus)


def takes_pods(node: StateNode) -> bool:
    """Whether any of its devices does, if the node itself does."""
    return any(gpu.health is _HEALTHY for gpu in node.gpus)


def is_paused(node: StateNode) -> bool:
    """Whether it has GPUs that no device plugin serves: its agent is being restarted, or gone."""
    return any(health_of(gpu) is Health.PAUSED for gpu in node.gpus)


def health_of(gpu: StateGpu) -> Health:
    """Of a GPU or a MIG device by itself."""
    if gpu.health is _HEALTHY:
        return Health.DEGRADED if gpu.degraded_reason else _ALSO_HEALTHY
    if gpu.health is StateGpuHealth.UNHEALTHY and gpu.reason in _PAUSES:
        return Health.PAUSED
    return Health(gpu.health)


def health_on(node: StateNode, own: Health) -> Health:
    """Of a GPU with such a health of its own: one of a cordoned node takes no new pods either."""
    return Health.CORDONED if node.cordoned and own in _TAKE_PODS else own


def mig_profile(gpu: StateGpu) -> str:
    """``1g.5gb``, of a MIG device whose resource says so; else empty."""
    if not gpu.parent or not gpu.resource.startswith(MIG_PREFIX):
        return ""
    profile = gpu.resource.removeprefix(MIG_PREFIX).removesuffix(SHARED_SUFFIX)
    return f"{profile.removesuffix('.me')}+me" if profile.endswith(".me") else profile


def device_name(gpu: StateGpu) -> str:
    """``GPU 0``, or ``MIG device 1g.5gb of GPU 0``."""
    name = f"GPU {gpu.index}" if gpu.index >= 0 else f"GPU {card_uuid(gpu)}"
    return " ".join(("MIG device", mig_profile(gpu), "of", name)).replace("  ", " ") if gpu.parent else name


def _card(node: StateNode, uuid: str, devices: Sequence[StateGpu]) -> Card:
    own = _gravest(map(health_of, devices))
    return Card(uuid, devices, health_on(node, own), own)


def _gravest(healths: Iterable[Health]) -> Health:
    return min(healths, key=_GRAVITY.__getitem__)
