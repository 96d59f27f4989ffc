"""Answers the operator's requests on one node, each once. A pending request is handled by the next process."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from purser.agent.mig.applying import WithdrawnError, apply_layouts, changed_layouts
from purser.agent.mig.hardware import HardwareError, MigGpu, MigHardware, OfferedProfile
from purser.agent.mig.layouts import LayoutError, Layouts, read_layouts, wanted
from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigRequest, MigResult, decode_request, decode_result
from purser.kube.backoff import Backoff
from purser.kube.client import Client
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import KubeError
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.racing import until
from purser.kube.resources import NODES, node_ref

log = structlog.get_logger("purser.agent")

FAILED = "the MIG worker failed to process the request: see the worker's log"

OpenHardware = Callable[[], MigHardware]
Renew = Callable[[], None]
"""Brings up to date what describes the devices to containers. Blocks; raises `HardwareError`."""


async def run(
    node: str,
    client: Client,
    layouts: Path,
    open_hardware: OpenHardware,
    stop: asyncio.Event,
    renew: Renew = lambda: None,
) -> None:
    """Answer requests until ``stop`` is set. A layout that is being applied then stops between two GPUs; the next
    process continues from there."""
    await until(Worker(node, client, layouts, open_hardware, renew).run(), stop.wait())


def answer(
    request: MigRequest,
    layouts: Path,
    open_hardware: OpenHardware,
    is_wanted: Callable[[], bool] = lambda: True,
    renew: Renew = lambda: None,
) -> MigResult:
    """Do what is asked, as long as it is wanted, and say how it went. Blocks, for minutes perhaps; never raises for
    what a node may do."""
    try:
        hardware = open_hardware()
        try:
            named = _read(layouts)
            gpus = hardware.gpus()
            target = wanted(named, request.profile, gpus, {gpu.index: _offers(hardware, gpu) for gpu in gpus})
            if request.check_only:
                changes = changed_layouts(gpus, target)
                unchanged = (gpu for gpu in gpus if changes and gpu.index not in changes)
                untouched = tuple(uuid for gpu in unchanged for uuid in gpu.uuids)
                return MigResult(request.profile, request.attempt, differs=bool(changes), untouched=untouched)
            apply_layouts(hardware, target, is_wanted)
        finally:
            hardware.close()
        renew()
    except (HardwareError, LayoutError, WithdrawnError) as error:
        return MigResult(request.profile, request.attempt, str(error))
    except (OSError, UnicodeDecodeError) as error:
        return MigResult(request.profile, request.attempt, f"cannot read the layouts in {layouts}: {error}")
    return MigResult(request.profile, request.attempt)


def _read(path: Path) -> Layouts:
    """The file's layouts; those with a mistake are in the log, whichever is asked for. Raises `LayoutError`, OSError
    and UnicodeDecodeError."""
    found = read_layouts(path.read_text(encoding="utf-8"), f"the layouts in {path}")
    for name, each in found.items():
        if isinstance(each, LayoutError):
            log.warning("A MIG layout is invalid and cannot be used", profile=name, error=str(each))
    return found


def _offers(hardware: MigHardware, gpu: MigGpu) -> Mapping[str, OfferedProfile]:
    """What the board itself says decides before anybody has to leave it; nothing where it does not answer."""
    if not gpu.capable:
        return {}
    try:
        return hardware.offers(gpu.index)
    except HardwareError as error:
        log.warning("The driver does not report which MIG profiles a GPU supports", gpu=gpu.index, error=str(error))
        return {}


class Worker:
    """Watches one node, and answers."""

    def __init__(
        self,
        node: str,
        client: Client,
        layouts: Path,
        open_hardware: OpenHardware,
        renew: Renew = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self._node = node
        self._client = client
        self._layouts = layouts
        self._open_hardware = open_hardware
        self._renew = renew
        self._clock = clock or SystemClock()
        self._look = asyncio.Event()
        self._backoff = Backoff(initial_s=0.5, cap_s=30.0)
        self._last: MigResult | None = None
        """The last answer: it is not recomputed when it is requested again before it was written."""
        self._at_work: MigRequest | None = None
        self._withdrawn = threading.Event()
        """Read by the thread that is at work."""
        self._nodes: Informer[Node] = Informer(client, NODES, field_selector=f"metadata.name={node}")
        seen = self._node_changed
        self._nodes.add_handler(on_add=lambda _: seen(), on_update=lambda *_: seen(), on_delete=lambda _: seen())

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._nodes.run())
            tasks.create_task(self._nodes.failures.keep_going("answering", self._answer_forever))

    async def _answer_forever(self) -> None:
        self._look.set()
        while True:
            await self._look.wait()
            self._look.clear()
            request = self._open_request()
            if request is None:
                continue
            if self._last is None or self._last.attempt != request.attempt:
                log.info("Applying a MIG layout", profile=request.profile, check_only=request.check_only)
                self._last = await self._apply_request(request)
                log.info("Finished processing a MIG layout", profile=request.profile, error=self._last.error)
            await self._write(self._last)

    async def _apply_request(self, request: MigRequest) -> MigResult:
        """In a thread, which checks between two GPUs whether it was cancelled."""
        result = MigResult(request.profile, request.attempt, FAILED)
        self._at_work = request
        withdrawn = self._withdrawn = threading.Event()
        try:
            with self._nodes.failures.guard(NODES, node_ref(self._node)):
                result = await asyncio.to_thread(
                    answer, request, self._layouts, self._open_hardware, lambda: not withdrawn.is_set(), self._renew
                )
        finally:
            withdrawn.set()
            self._at_work = None
        return result

    def _node_changed(self) -> None:
        self._look.set()
        if self._at_work is not None and self._request() != self._at_work:
            self._withdrawn.set()

    def _annotations(self) -> dict[str, str]:
        node = self._nodes.store.get(self._node)
        return node.metadata.annotations if node is not None else {}

    def _request(self) -> MigRequest | None:
        return decode_request(self._annotations().get(MIG_WANTED_ANNOTATION))

    def _open_request(self) -> MigRequest | None:
        """What is asked and not answered."""
        request, result = self._request(), decode_result(self._annotations().get(MIG_RESULT_ANNOTATION))
        answered = request is not None and result is not None and result.attempt == request.attempt
        return None if answered else request

    async def _write(self, result: MigResult) -> None:
        try:
            annotations = {MIG_RESULT_ANNOTATION: encode(result)}
            await self._client.patch_merge(NODES, self._node, {"metadata": {"annotations": annotations}})
            self._backoff.reset()
        except KubeError as error:
            delay = self._backoff.next()
            log.warning("Cannot write the result of a MIG layout", error=str(error), retry_in_s=round(delay, 2))
            await self._clock.sleep(delay)
            self._look.set()
