"""The rollout document of this replica: ClusterPolicies are listed when somebody asks, once a second at most."""

import asyncio
import hashlib
from collections.abc import Callable, Iterable

import msgspec

from purser.adapters.rollouts import make_rollout, read_policies
from purser.kube import Client, Clock
from purser.kube.objects import Node
from purser.scheduler.read_api.page import FRESH_FOR_S, EncodedState

_REST = 3.0
"""For so many times as long as it took to make, a document is not made again."""


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
        statuses, problems = await read_policies(self._client)
        began, nodes = self._clock.monotonic(), list(self._nodes())
        made = await asyncio.to_thread(lambda: msgspec.json.encode(make_rollout(statuses, nodes, problems)))
        now = self._clock.monotonic()
        self._fresh_until = now + max(FRESH_FOR_S, _REST * (now - began))
        self._last = EncodedState(f'"{hashlib.sha256(made).hexdigest()[:32]}"', (made,))
        return self._last
