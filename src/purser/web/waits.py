"""What the pages say of how long pods like a waiting one have waited that got through.

The document has pods that hold GPUs now, so pods that have ended do not count. What pods may choose their nodes by, and
who goes first, is not compared: the pages say so beside the figures.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, attrgetter
from typing import NamedTuple

from purser.core.kubernetes.times import parsed
from purser.core.model import WHOLE_PERCENT, DeviceMode
from purser.core.names import GPU_RESOURCE
from purser.core.pod.phases import largest
from purser.core.state import ClusterState, StateAsk, StateContainer, StateGpu, StateGrant, StateWaiting
from purser.core.wording import counted
from purser.web.tables import ReasonGroup

MAX_WAITS = 20
"""Pods of which it is said how long they waited: the newest."""
MAX_KINDS = 3
"""Kinds of requests of one group of waiting pods of which it is said: those of most pods."""
MAX_CLOCK_SKEW_S = 60
"""By how much a node's clock may be behind the API server's. Whoever started longer before it was created is left
out."""
_IN_EQUAL_PARTS = (DeviceMode.TIME_SLICING, DeviceMode.MPS)
"""Who asks for a GPU that is handed out so, and for no amount, gets a part."""
_ALIKE = 2
"""A share is like another one of at least a half and at most twice its memory."""


@dataclass(frozen=True)
class RequestKind:
    """What pods ask for that are alike."""

    gpus: int
    asks: StateAsk

    @property
    def words(self) -> str:
        """What those hold that count: ``1 whole GPU``, ``500 to 2,000 MiB of each of 2 GPUs``."""
        asks = self.asks
        what = "GPU" if asks.resource == GPU_RESOURCE else f"{asks.resource} device"
        if asks.whole:
            return counted(self.gpus, f"whole {what}" if asks.resource == GPU_RESOURCE else what)
        asked = asks.memory_mib or asks.memory_percent
        low, high = -(-asked // _ALIKE), asked * _ALIKE
        amount = (
            f"{low:,} to {high:,} MiB" if asks.memory_mib else f"{low} to {min(high, WHOLE_PERCENT)}% of the memory"
        )
        return f"{amount} of {'each of ' if self.gpus > 1 else ''}{counted(self.gpus, what)}"


@dataclass
class PastWaits:
    """How long the newest pods of one kind waited that got through."""

    kind: RequestKind
    seconds: list[int] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether there may be others, older ones."""
        return len(self.seconds) == MAX_WAITS

    @property
    def median_s(self) -> int:
        """Half of them waited as long or shorter."""
        return sorted(self.seconds)[(len(self.seconds) - 1) // 2]

    @property
    def longest_s(self) -> int:
        """Of them."""
        return max(self.seconds)


class _Held(NamedTuple):
    """What a pod holds of each of its GPUs; of several containers the one that holds most counts."""

    gpus: int
    resource: str
    whole: bool
    memory_mib: int
    memory_percent: float


def waits_of_groups(state: ClusterState, groups: Iterable[ReasonGroup]) -> list[Sequence[PastWaits]]:
    """For each group of waiting pods, of the kinds of requests of most pods, how long others waited. Kinds are left
    out of which no pod is known that got through."""
    kinds = [_most_common(group.pods) for group in groups]
    found = _past_waits(state, {kind for each in kinds for kind in each})
    return [[found[kind] for kind in each if found[kind].seconds] for each in kinds]


def waits_of_pod(state: ClusterState, pod: StateWaiting) -> PastWaits | None:
    """How long others waited that are like a waiting pod; None: no such pod is known."""
    (found,) = waits_of_groups(state, [ReasonGroup(pod.reason, [pod])])
    return found[0] if found else None


def wait_text(seconds: int) -> str:
    """``45s``, ``5m30s``, ``2h10m``, ``3d4h``: to a unit that is small against the whole. The API's times are of whole
    seconds, so that no wait is shorter than one."""
    if seconds < 120:
        return f"{max(seconds, 1)}s"
    if seconds < 120 * 60:
        return _in_units(seconds, 60, "m", 1, "s")
    return _in_units(seconds, 3600, "h", 60, "m") if seconds < 48 * 3600 else _in_units(seconds, 86400, "d", 3600, "h")


def _in_units(seconds: int, unit_s: int, unit: str, part_s: int, part: str) -> str:
    rest = seconds % unit_s // part_s
    return f"{seconds // unit_s}{unit}{f'{rest}{part}' if rest else ''}"


def _most_common(pods: Iterable[StateWaiting]) -> list[RequestKind]:
    kinds = Counter(RequestKind(pod.gpus, pod.asks) for pod in pods if pod.asks is not None and pod.gpus)
    return [kind for kind, _ in kinds.most_common(MAX_KINDS)]


def _past_waits(state: ClusterState, kinds: Iterable[RequestKind]) -> Mapping[RequestKind, PastWaits]:
    found = {kind: PastWaits(kind) for kind in kinds}
    open_kinds = list(found.values())
    if not open_kinds:
        return found  # nothing is looked for among all pods
    gpus = {gpu.uuid: gpu for node in state.nodes for gpu in node.gpus}
    sizes = {kind.gpus for kind in found}
    known = (each for each in state.grants if each.created and each.started)
    for grant in sorted(known, key=attrgetter("started"), reverse=True):  # the API writes all times alike
        held = _held(grant, gpus, sizes)
        alike = [] if held is None else [each for each in open_kinds if _is_alike(each.kind, held)]
        seconds = _seconds(grant) if alike else None
        if seconds is not None:
            for waits in alike:
                waits.seconds.append(seconds)
            open_kinds = [each for each in open_kinds if not each.is_full]
        if not open_kinds:
            break
    return found


def _seconds(grant: StateGrant) -> int | None:
    """How long it waited; None: the times are none, or one of two clocks is wrong."""
    created, started = parsed(grant.created), parsed(grant.started)
    if created is None or started is None or started < created - MAX_CLOCK_SKEW_S:
        return None
    return max(int(started - created), 0)


def _held(grant: StateGrant, gpus: Mapping[str, StateGpu], sizes: Collection[int]) -> _Held | None:
    """None: it holds none of so many GPUs, GPUs of several kinds, or some that no node lists."""
    count = _count(grant.containers)
    if count not in sizes:
        return None
    kinds, memory_mib, memory_percent = set[tuple[str, bool]](), 0, 0.0
    for part in grant.containers:
        for share in part.shares:
            gpu = gpus.get(share.gpu)
            if gpu is None:
                return None
            kinds.add((gpu.resource, share.cores_percent >= WHOLE_PERCENT or gpu.mode in _IN_EQUAL_PARTS))
            memory_mib = max(memory_mib, share.memory_mib)
            memory_percent = max(memory_percent, 100 * share.memory_mib / (gpu.memory_mib or 1))
    if len(kinds) != 1:
        return None
    ((resource, whole),) = kinds
    return _Held(count, resource, whole, memory_mib, memory_percent)


def _count(containers: Sequence[StateContainer]) -> int:
    """How many GPUs they have at once at most, a share counted as one."""
    if len(containers) == 1:
        return len(containers[0].shares)  # as most pods
    return largest(((part.kind, len(part.shares)) for part in containers), 0, add, max)


def _is_alike(kind: RequestKind, held: _Held) -> bool:
    asks = kind.asks
    if (kind.gpus, asks.resource, asks.whole) != (held.gpus, held.resource, held.whole):
        return False
    if asks.whole:
        return True
    asked, has = (asks.memory_mib, held.memory_mib) if asks.memory_mib else (asks.memory_percent, held.memory_percent)
    return asked <= _ALIKE * has and has <= _ALIKE * asked
