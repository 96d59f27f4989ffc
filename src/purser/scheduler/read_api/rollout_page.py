"""The rollout document of this replica: ClusterPolicies are listed when somebody asks, once a second at most."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from purser.adapters.rollouts import read_policies, rollout_node_of
from purser.core.state import Rollout, rollout
from purser.kube import Client, Clock
from purser.kube.objects import Node
from purser.scheduler.read_api.page import FRESH_FOR_S, EncodedState, digest_of, in_steps

_REST = 3.0
"""For so many times as long as it took to make, a document is not made again."""
LIST_TIMEOUT_S = 2.0
"""Requests that wait for the API server take up the places of those for other documents."""
_NODES_AT_ONCE = 64
"""Between two turns of the event loop: a millisecond's work."""


class RolloutPage:
    """Requests that wait for the document share it."""

    def __init__(self, client: Client, nodes: Callable[[], Iterable[Node]], clock: Clock) -> None:
        self._client, self._nodes, self._clock = client, nodes, clock
        self._last: EncodedState | None = None
        self._fresh_until = 0.0
        self._making: asyncio.Task[EncodedState] | None = None

    async def current(self) -> EncodedState:
        """The newest, a second old at most, or some where it takes that long to make."""
        if self._making is None:
            if self._last is not None and self._clock.monotonic() < self._fresh_until:
                return self._last
            self._making = asyncio.ensure_future(self._make())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)  # others wait for it where this request is given up

    def _made(self, _: object) -> None:
        self._making = None

    async def _make(self) -> EncodedState:
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                statuses, problems = await read_policies(self._client)
        except TimeoutError:
            statuses, problems = {}, [f"ClusterPolicies cannot be listed: no answer within {LIST_TIMEOUT_S:g} s"]
        nodes: list[bytes] = []
        await in_steps(self._put_nodes(nodes), _NODES_AT_ONCE)
        rest = await asyncio.to_thread(rollout, statuses, (), problems)  # a status has up to a megabyte
        pieces = tuple(_pieces(rest, nodes))
        self._last = EncodedState(f'"{(await digest_of(pieces)).hex()}"', pieces)
        now = self._clock.monotonic()
        self._fresh_until = now + max(FRESH_FOR_S, _REST * (now - began))
        return self._last

    def _put_nodes(self, encoded: list[bytes]) -> Iterator[None]:
        for node in sorted(self._nodes(), key=lambda each: each.metadata.name):
            if (found := rollout_node_of(node)) is not None:
                encoded.append((b"," if encoded else b"") + msgspec.json.encode(found))
            yield


def _pieces(rest: Rollout, nodes: Sequence[bytes]) -> Iterator[bytes]:
    """A document in the order of the fields of `Rollout`."""
    yield b'{"version":%s,"policies":%s,"nodes":[' % (
        msgspec.json.encode(rest.version),
        msgspec.json.encode(rest.policies),
    )
    yield from nodes
    yield b'],"problems":%s}' % msgspec.json.encode(rest.problems)
