"""The state document of this replica: made in small steps, encoded as it is made, and kept until it is old.

kube-scheduler's questions go first: between two steps the loop answers them, and after a document it has at least three
times as long for others as that took. So a document is not a picture of one moment: it took some milliseconds, at a
thousand nodes some hundred, and pods came and went meanwhile.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec

from purser.core.state import STATE_VERSION, StateReason, StateReplica, StateWaiting, state_grant, state_node
from purser.kube import Clock
from purser.scheduler.cache import ClusterCache
from purser.scheduler.pending import PendingPod, PendingPods
from purser.scheduler.reasons import PendingReason

FRESH_FOR_S = 1.0
"""A document is not made again before it is so old."""
_WAITS = PendingReason.KUBE_SCHEDULER.happened
_REST = 3.0
_NODES_AT_ONCE = 16
_GRANTS_AT_ONCE = 256
_PODS_AT_ONCE = 256
_PIECES_AT_ONCE = 16
"""Between two turns of the event loop: one to three milliseconds' work."""


class EncodedState(msgspec.Struct, frozen=True):
    """A document, encoded."""

    tag: str
    """Another one whenever the document is another."""
    pieces: tuple[bytes, ...]
    """One after the other: of thousands of nodes all of it together has megabytes, which nobody needs in one piece."""

    @property
    def length(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))


class StatePage:
    """Requests that wait for a document share it."""

    def __init__(
        self, cache: ClusterCache, pending: PendingPods, replica: Callable[[], StateReplica], clock: Clock
    ) -> None:
        self._cache, self._pending, self._replica, self._clock = cache, pending, replica, clock
        self._instance = secrets.token_hex(8)
        self._sequence = 0
        self._last: tuple[bytes, EncodedState] | None = None
        """A digest of what of it can change, and the whole."""
        self._fresh_until = 0.0
        self._making: asyncio.Task[EncodedState] | None = None

    async def current(self) -> EncodedState:
        """The newest, a second old at most, or some where it takes that long to make."""
        if self._making is None:
            if self._last is not None and self._clock.monotonic() < self._fresh_until:
                return self._last[1]
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)  # others wait for it where this request is given up

    def _made(self, _: object) -> None:
        self._making = None

    async def _make(self) -> EncodedState:
        began = self._clock.monotonic()
        replica = self._replica()
        pieces = [b'"replica":', msgspec.json.encode(replica), b',"nodes":[']
        pieces += await _encoded(self._nodes(), _NODES_AT_ONCE)
        pieces.append(b'],"grants":[')
        pieces += await _encoded(self._grants(), _GRANTS_AT_ONCE)
        pieces.append(b'],"waiting":[')
        pieces += await _encoded(self._waiting(knows_why=replica.places_pods), _PODS_AT_ONCE)
        notes = msgspec.json.encode(replica.notes)
        pieces.append(b'],"notes":%s,"api_version":"%s"}' % (notes, STATE_VERSION.encode()))
        digest = await _digest(pieces)
        now = self._clock.monotonic()
        self._fresh_until = now + max(FRESH_FOR_S, _REST * (now - began))
        if self._last is None or self._last[0] != digest:
            self._sequence += 1
            head = b'{"instance":"%s","sequence":%d,' % (self._instance.encode(), self._sequence)
            made = EncodedState(f'"{self._instance}-{self._sequence}"', (head, *pieces))
            self._last = (digest, made)
        return self._last[1]

    def _nodes(self) -> Iterator[object]:
        for name in sorted(self._cache.fleet.names()):
            state, node = self._cache.fleet.node(name), self._cache.node(name)
            if state is not None:  # else it has gone meanwhile
                yield state_node(state, cordoned=node is not None and node.spec.unschedulable)

    def _grants(self) -> Iterator[object]:
        fleet = self._cache.fleet
        for uid in fleet.ledger.uids():
            grant, state = fleet.ledger.grant(uid), fleet.ledger.state(uid)
            if grant is not None and state is not None:
                yield state_grant(grant, state, fleet.node(grant.node))

    def _waiting(self, *, knows_why: bool) -> Iterator[object]:
        for uid, pod in self._pending.pods():
            yield _entry(uid, pod, self._cache.scheduler_name, knows_why=knows_why)


async def _encoded(things: Iterator[object], at_once: int) -> list[bytes]:
    """The elements of a list in JSON, ``at_once`` in a piece."""
    pieces: list[bytes] = []
    while some := list(islice(things, at_once)):
        text = msgspec.json.encode(some)[1:-1]  # without the brackets of the list
        pieces.append(b"," + text if pieces else text)
        await asyncio.sleep(0)
    return pieces


async def _digest(pieces: Sequence[bytes]) -> bytes:
    """Equal for equal pieces."""
    digest = hashlib.blake2b(digest_size=16)
    for at, piece in enumerate(pieces):
        digest.update(piece)
        if at % _PIECES_AT_ONCE == _PIECES_AT_ONCE - 1:
            await asyncio.sleep(0)
    return digest.digest()


def _entry(uid: str, pod: PendingPod, scheduler: str, *, knows_why: bool) -> StateWaiting:
    """A pod of which there is no message was not refused; ``knows_why``: as far as a replica knows that places pods."""
    if not knows_why:
        pod = msgspec.structs.replace(pod, reason="", nodes_by_reason=(), message="")
    reasons = tuple(StateReason("Purser", reason, nodes, 0, "") for reason, nodes in pod.nodes_by_reason)
    return StateWaiting(
        namespace=pod.namespace,
        pod=pod.name,
        uid=uid,
        since=pod.since,
        scheduler=scheduler,
        priority=pod.priority,
        gpus=pod.gpus,
        reason=str(pod.reason),
        message=pod.message or (_WAITS if knows_why else ""),
        reasons=reasons,
    )
