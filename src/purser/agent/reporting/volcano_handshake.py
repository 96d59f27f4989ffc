"""The agent's answer to Volcano's scheduler, which asks nodes with vGPUs for a sign of life.

Volcano 1.8 to 1.14.2, and 1.15.0, ask by the annotation ``volcano.sh/node-vgpu-handshake`` and drop a node that has not
answered for a minute. Its device plugin answers each half a minute, asked or not.
"""

import asyncio

import structlog

from purser.core.vendors.volcano_nodes import VGPU_HANDSHAKE_ANNOTATION, awaits_answer, handshake_answer
from purser.kube.client import Client
from purser.kube.clock import Clock
from purser.kube.errors import KubeError
from purser.kube.objects import Node
from purser.kube.resources import NODES

log = structlog.get_logger("purser.agent")

MIN_ANSWER_INTERVAL_S = 30.0
"""Between two answers at least, as of Volcano's plugin: its scheduler asks again as soon as it has one, several times
a second where many pods wait."""


class VolcanoHandshake:
    """Answers on one node. What becomes of it holds up nothing else: an answer that is refused is tried again when the
    next one is due."""

    def __init__(self, client: Client, clock: Clock, look: asyncio.Event) -> None:
        """``look``: set when an answer may be due again."""
        self._client = client
        self._clock = clock
        self._look = look
        self._due = 0.0
        """By the monotonic clock."""

    async def answer(self, node: Node) -> None:
        """Answer, if the node is asked and the last answer is old enough."""
        if self._clock.monotonic() < self._due or not awaits_answer(node.metadata.annotations):
            return
        self._due = self._clock.monotonic() + MIN_ANSWER_INTERVAL_S
        asyncio.get_running_loop().call_later(MIN_ANSWER_INTERVAL_S, self._look.set)
        moment = f"{self._clock.now():%Y-%m-%d %H:%M:%S} +0000 UTC"  # as Go prints it, and so Volcano's plugin
        answer = {VGPU_HANDSHAKE_ANNOTATION: handshake_answer(moment)}
        try:
            await self._client.patch_merge(NODES, node.metadata.name, {"metadata": {"annotations": answer}})
        except KubeError as error:
            log.warning("Cannot answer Volcano's scheduler", error=str(error), retry_in_s=MIN_ANSWER_INTERVAL_S)
