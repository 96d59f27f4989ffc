"""What became of every honest pod: each is followed from its creation to its end, and whoever was hurt is reported."""

import asyncio
import time
from dataclasses import dataclass, field

from tests.scenarios.pods import Raw

_TERMINAL = ("Succeeded", "Failed")
_NO_DEVICE = (
    "no healthy devices present",
    "is unhealthy",
    "OutOfnvidia.com/gpu",
    "Insufficient nvidia.com/gpu",
    "does not match the grant",
    "client connection is closing",
    "failed to connect to all addresses",
    "has been stopped",
)
"""What kubelet and agent say of a device or plugin that went away after the pod was bound: nobody can help it then."""

_RECENT_S = 20.0
"""Between what breaks on a node and the last refusal that comes of it."""


@dataclass
class PodRecord:
    """One honest pod."""

    name: str
    created_at: float
    running_at: float | None = None
    node: str = ""
    failure: str = ""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it runs or was refused."""


@dataclass
class HonestPods:
    """The records of all honest pods that still exist, and the sums over all that ever did."""

    patience_s: float
    existing: dict[str, PodRecord] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    hurt: list[PodRecord] = field(default_factory=list)
    excused: list[PodRecord] = field(default_factory=list)
    created: int = 0
    _broke_at: dict[str, float] = field(default_factory=dict)

    def add(self, name: str) -> PodRecord:
        """A pod was created."""
        self.created += 1
        self.existing[name] = record = PodRecord(name, time.monotonic())
        return record

    def observe(self, pod: Raw) -> None:
        """The API server says how a pod is."""
        record = self.existing.get(pod["metadata"]["name"])
        if record is None or record.failure:
            return
        record.node = pod["spec"].get("nodeName", "")
        status = pod.get("status", {})
        if status.get("phase") == "Running" and record.running_at is None:
            record.running_at = time.monotonic()
            self.waits_s.append(record.running_at - record.created_at)
            record.settled.set()
        if status.get("phase") in _TERMINAL:
            self._fail(record, f"on {record.node}: {status.get('reason', '')}: {status.get('message', '')}")

    def node_breaks(self, node: str) -> None:
        """A card, the kubelet or the agent of this node goes away, or is back."""
        self._broke_at[node] = time.monotonic()

    def check_waiting(self) -> None:
        """A pod that has waited too long is hurt as well."""
        now = time.monotonic()
        for record in self.existing.values():
            if not record.failure and record.running_at is None and now - record.created_at > self.patience_s:
                self._fail(record, f"not running after {now - record.created_at:.0f} s, node {record.node or 'none'}")

    def remove(self, name: str) -> None:
        """Its owner deleted the pod."""
        self.existing.pop(name, None)

    def describe(self) -> str:
        """What became of them, with the quantiles of how long they waited."""
        waits = sorted(self.waits_s) or [0.0]
        quantiles = ", ".join(f"p{q} {waits[min(len(waits) - 1, len(waits) * q // 100)]:.2f} s" for q in (50, 90, 99))
        lines = [
            f"honest pods: {self.created} created, {len(self.waits_s)} ran,",
            f"after {quantiles}, at most {waits[-1]:.1f} s",
            f"hurt: {len(self.hurt)}; refused by a kubelet whose card or device plugin was away: {len(self.excused)}",
        ]
        return "\n".join([*lines, *(f"  HURT {record.name} {record.failure}" for record in self.hurt[:50])])

    def _fail(self, record: PodRecord, how: str) -> None:
        record.failure = how
        record.settled.set()
        broke_at = self._broke_at.get(record.node, -_RECENT_S)
        excused = time.monotonic() - broke_at < _RECENT_S and any(text in how for text in _NO_DEVICE)
        (self.excused if excused else self.hurt).append(record)
