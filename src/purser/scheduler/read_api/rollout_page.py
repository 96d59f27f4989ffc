"""The rollout document of this replica: ClusterPolicies are listed when somebody asks, once a second at most."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from purser.adapters.rollouts import read_policies, rollout_node_of
from purser.core.state import Rollout, rollout
from purser.kube import Client, Clock
from purser.kube.objects import Node
from purser.scheduler.read_api.documents import EncodedState, SharedValue, digest_of, run_in_steps

LIST_TIMEOUT_S = 2.0
"""Requests that wait for the API server take up the places of those for other documents."""
_NODES_AT_ONCE = 64
"""Between two turns of the event loop: a millisecond's work."""


class RolloutPage:
    """Requests that wait for the document share it."""

    def __init__(self, client: Client, nodes: Callable[[], Iterable[Node]], clock: Clock) -> None:
        self._client, self._nodes = client, nodes
        self._document = SharedValue(self._make, clock)

    async def current(self) -> EncodedState:
        """The newest."""
        return await self._document.current()

    async def _make(self) -> EncodedState:
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                statuses, problems = await read_policies(self._client)
        except TimeoutError:
            statuses, problems = {}, [f"ClusterPolicies cannot be listed: no answer within {LIST_TIMEOUT_S:g} s"]
        nodes: list[bytes] = []
        await run_in_steps(self._put_nodes(nodes), _NODES_AT_ONCE)
        rest = await asyncio.to_thread(rollout, statuses, (), problems)  # a status has up to a megabyte
        pieces = tuple(_pieces(rest, nodes))
        return EncodedState(f'"{(await digest_of(pieces)).hex()}"', pieces)

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
