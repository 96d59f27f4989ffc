"""Answers the operator's requests on one node, each once. A request that stands is taken up by whoever starts next."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from purser.agent.mig.applying import bring, differences
from purser.agent.mig.hardware import HardwareError, MigHardware
from purser.agent.mig.layouts import LayoutError, read_layouts, wanted
from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node_facts import MigRequest, MigResult, decode_request, decode_result, encode
from purser.kube.backoff import Backoff
from purser.kube.client import Client
from purser.kube.errors import KubeError
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.racing import until
from purser.kube.resources import NODES

log = structlog.get_logger("purser.agent")

OpenHardware = Callable[[], MigHardware]


async def run(node: str, client: Client, layouts: Path, open_hardware: OpenHardware, stop: asyncio.Event) -> None:
    """Answer requests until ``stop`` is set. An answer that is being worked on is finished, but not written."""
    await until(Worker(node, client, layouts, open_hardware).run(), stop.wait())


def answer(request: MigRequest, layouts: Path, open_hardware: OpenHardware) -> MigResult:
    """Do what is asked and say how it went. Blocks, for minutes perhaps; never raises for what a node may do."""
    try:
        hardware = open_hardware()
        try:
            named = read_layouts(layouts.read_text(encoding="utf-8"))
            cards = hardware.cards()
            target = wanted(named, request.profile, cards)
            if request.check_only:
                return MigResult(request.profile, request.attempt, differs=bool(differences(cards, target)))
            bring(hardware, target)
        finally:
            hardware.close()
    except (HardwareError, LayoutError) as error:
        return MigResult(request.profile, request.attempt, str(error))
    except (OSError, UnicodeDecodeError) as error:
        return MigResult(request.profile, request.attempt, f"the layouts in {layouts} cannot be read: {error}")
    return MigResult(request.profile, request.attempt)


class Worker:
    """Watches one node, and answers."""

    def __init__(self, node: str, client: Client, layouts: Path, open_hardware: OpenHardware) -> None:
        self._node = node
        self._client = client
        self._layouts = layouts
        self._open_hardware = open_hardware
        self._look = asyncio.Event()
        self._backoff = Backoff(initial_s=0.5, cap_s=30.0)
        self._last: MigResult | None = None
        """The last answer: asked for again before it was written, it is not worked out anew."""
        self._nodes: Informer[Node] = Informer(client, NODES, field_selector=f"metadata.name={node}")
        self._nodes.add_handler(on_add=lambda _: self._look.set(), on_update=lambda *_: self._look.set())

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._answer_forever())

    async def _answer_forever(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            request = self._open_request()
            if request is None:
                continue
            if self._last is None or self._last.attempt != request.attempt:
                log.info("a MIG layout is asked for", profile=request.profile, check_only=request.check_only)
                self._last = await asyncio.to_thread(answer, request, self._layouts, self._open_hardware)
                log.info("the MIG layout is answered for", profile=request.profile, error=self._last.error)
            await self._write(self._last)

    def _open_request(self) -> MigRequest | None:
        """What is asked and not answered."""
        node = self._nodes.store.get(self._node)
        there = node.metadata.annotations if node is not None else {}
        request, result = (
            decode_request(there.get(MIG_WANTED_ANNOTATION)),
            decode_result(there.get(MIG_RESULT_ANNOTATION)),
        )
        answered = request is not None and result is not None and result.attempt == request.attempt
        return None if answered else request

    async def _write(self, result: MigResult) -> None:
        try:
            annotations = {MIG_RESULT_ANNOTATION: encode(result)}
            await self._client.patch_merge(NODES, self._node, {"metadata": {"annotations": annotations}})
            self._backoff.reset()
        except KubeError as error:
            delay = self._backoff.next()
            log.warning("the answer cannot be written", error=str(error), retry_in_s=round(delay, 2))
            await asyncio.sleep(delay)
            self._look.set()
