"""The worker over a real connection: requests at its node, answers beside them."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.unit.agent.mig.fake_gpus import Gpus
from tests.unit.kube.servers import HastyClock
from tests.unit.operator.embedded import Embedded, create_node, embedded, eventually, node, running

from purser.agent.mig import HardwareError, Layout, NoHardware, run
from purser.agent.mig.hardware import OfferedProfile
from purser.agent.mig.worker import Worker, answer
from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigRequest, MigResult, decode_result
from purser.kube import Client
from purser.kube.resources import NODES
from purser.operator.manifests.mig_manager import default_layouts

OFF = Layout(False)
SMALL = Layout(True, ("1g.5gb",) * 7)


@pytest.fixture
def layouts(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(default_layouts())
    return path


async def ask(client: Client, request: MigRequest | None) -> None:
    text = None if request is None else encode(request)
    await client.patch_merge(NODES, "a", {"metadata": {"annotations": {MIG_WANTED_ANNOTATION: text}}})


async def answered(client: Client, attempt: str) -> MigResult:
    async def found() -> MigResult | None:
        there = decode_result((await client.get(NODES, "a")).metadata.annotations.get(MIG_RESULT_ANNOTATION))
        return there if there is not None and there.attempt == attempt else None

    result: MigResult = await eventually(found)
    return result


def working(cluster: Embedded, client: Client, layouts: Path, gpus: Any) -> Any:
    return running(run("a", client, layouts, lambda: gpus, asyncio.Event()))


def test_it_says_which_gpus_a_layout_leaves_as_they_are(layouts: Path) -> None:
    """Of a layout that is there nothing is asked."""
    for now, untouched in (((SMALL, OFF, SMALL), ("GPU-0", "GPU-2")), ((OFF, OFF), ()), ((SMALL, SMALL), ())):
        result = answer(MigRequest("all-1g.5gb", "1", check_only=True), layouts, lambda now=now: Gpus(*now))
        assert (result.differs, result.untouched) == (any(each == OFF for each in now), untouched)


async def test_it_compares_applies_and_answers_each_request_once(tmp_path: Path, layouts: Path) -> None:
    gpus = Gpus(OFF, OFF)
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))
        with working(cluster, client, layouts, gpus):
            await ask(cluster.client, MigRequest("all-1g.5gb", "1", check_only=True))
            assert await answered(cluster.client, "1") == MigResult("all-1g.5gb", "1", differs=True)
            assert gpus.calls == []
            await ask(cluster.client, MigRequest("all-1g.5gb", "2"))
            assert await answered(cluster.client, "2") == MigResult("all-1g.5gb", "2")
            assert gpus.layouts() == [SMALL, SMALL]
            await ask(cluster.client, MigRequest("all-1g.5gb", "3", check_only=True))
            assert await answered(cluster.client, "3") == MigResult("all-1g.5gb", "3")
            await ask(cluster.client, MigRequest("no-such", "4"))
            assert (await answered(cluster.client, "4")).error.startswith("layout no-such does not exist")
            await ask(cluster.client, None)
            await ask(cluster.client, MigRequest("all-1g.5gb", "5", check_only=True))
            assert await answered(cluster.client, "5") == MigResult("all-1g.5gb", "5")
        assert len(cluster.writes) == 5
        assert gpus.closed == 5


def test_what_the_board_contradicts_is_found_when_layouts_are_compared(layouts: Path) -> None:
    """Before anybody has to leave the node."""
    gpus = Gpus(OFF, device_id="0x294110DE")
    gpus.offered = {"1g.23gb": OfferedProfile(7), "2g.47gb": OfferedProfile(3), "3g.93gb": OfferedProfile(2)}
    told = answer(MigRequest("all-1g.24gb", "1", check_only=True), layouts, lambda: gpus).error
    assert told.startswith("GPU 0 does not support 1g.24gb, only 1g.23gb, 2g.47gb, 3g.93gb: use one of all-1g.23gb,")
    assert answer(MigRequest("all-1g.23gb", "2", check_only=True), layouts, lambda: gpus).differs
    assert gpus.calls == []


def test_a_driver_that_does_not_say_what_it_offers_contradicts_nothing(layouts: Path) -> None:
    class Silent(Gpus):
        def offers(self, index: int) -> dict[str, OfferedProfile]:
            raise HardwareError("it does not say")

    assert answer(MigRequest("all-1g.5gb", "1", check_only=True), layouts, lambda: Silent(OFF)).differs


def test_a_layout_with_a_mistake_costs_itself_alone(layouts: Path) -> None:
    layouts.write_text(f"{default_layouts()}  mine: [{{devices: all, mig-enabled: true, mig-device: {{}}}}]\n")
    assert answer(MigRequest("all-1g.5gb", "1", check_only=True), layouts, lambda: Gpus(OFF)).differs
    told = answer(MigRequest("mine", "2", check_only=True), layouts, lambda: Gpus(OFF)).error
    assert told == f"the layouts in {layouts}: mig-configs.mine[0]: unknown field mig-device: did you mean mig-devices?"


async def test_a_request_that_stands_when_it_starts_is_taken_up(tmp_path: Path, layouts: Path) -> None:
    """As after a death in the middle: what is done already is not done again."""
    gpus = Gpus(SMALL, OFF)
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))
        await ask(cluster.client, MigRequest("all-1g.5gb", "1"))
        with working(cluster, client, layouts, gpus):
            assert (await answered(cluster.client, "1")).error == ""
    assert not [call for call in gpus.calls if call.startswith(("mode 0", "devices 0"))]
    assert gpus.layouts() == [SMALL, SMALL]


class Slow(Gpus):
    """Each layout takes until somebody lets it go on."""

    def __init__(self, *layouts: Layout) -> None:
        super().__init__(*layouts)
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def set_devices(self, index: int, profiles: tuple[str, ...]) -> None:
        self.begun.set()
        assert self.may_go_on.wait(30)
        super().set_devices(index, profiles)


@pytest.mark.parametrize("instead", [None, MigRequest("all-disabled", "2")], ids=["withdrawn", "another request"])
async def test_a_request_that_is_withdrawn_stops_between_two_gpus(
    tmp_path: Path, layouts: Path, instead: MigRequest | None
) -> None:
    gpus = Slow(OFF, OFF)
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))
        worker = Worker("a", client, layouts, lambda: gpus)
        with running(worker.run()):
            await ask(cluster.client, MigRequest("all-1g.5gb", "1"))
            assert await asyncio.to_thread(gpus.begun.wait, 30)
            await ask(cluster.client, instead)
            await eventually(lambda: worker._withdrawn.is_set())
            gpus.may_go_on.set()
            if instead is None:
                assert (
                    await answered(cluster.client, "1")
                ).error == "the request was withdrawn; GPUs changed before that: GPU 0"
                assert gpus.layouts() == [SMALL, OFF]
            else:
                assert (await answered(cluster.client, "2")).error == ""
                assert gpus.layouts() == [OFF, OFF]


async def test_stopped_it_ends_between_two_gpus_and_its_successor_goes_on(tmp_path: Path, layouts: Path) -> None:
    gpus = Slow(OFF, OFF)
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))
        stop = asyncio.Event()
        first = asyncio.create_task(run("a", client, layouts, lambda: gpus, stop))
        await ask(cluster.client, MigRequest("all-1g.5gb", "1"))
        assert await asyncio.to_thread(gpus.begun.wait, 30)
        stop.set()
        await first
        gpus.may_go_on.set()

        async def is_over() -> bool:
            return gpus.closed == 1

        await eventually(is_over)
        assert gpus.layouts() == [SMALL, OFF]
        with working(cluster, client, layouts, gpus):
            assert (await answered(cluster.client, "1")).error == ""
        assert gpus.layouts() == [SMALL, SMALL]


async def test_an_answer_that_cannot_be_written_is_written_later_and_not_worked_out_again(
    tmp_path: Path, layouts: Path
) -> None:
    gpus = Gpus(OFF)
    refused = 0

    async def refuse(request: web.Request) -> web.StreamResponse | None:
        nonlocal refused
        if request.method == "PATCH" and request.headers.get("User-Agent") == "worker" and refused < 2:
            refused += 1
            return web.json_response({"kind": "Status", "status": "Failure", "code": 500}, status=500)
        return None

    async with embedded(tmp_path) as cluster, Client(cluster.config, user_agent="worker") as client:
        await create_node(cluster.client, node("a"))
        cluster.server.intercept(refuse)
        clock = HastyClock()
        with running(Worker("a", client, layouts, lambda: gpus, clock=clock).run()):
            await ask(cluster.client, MigRequest("all-1g.5gb", "1"))
            await answered(cluster.client, "1")
    assert refused == len(clock.slept) == 2
    assert gpus.closed == 1


@pytest.mark.parametrize("text", ["", "nonsense", "{}"])
async def test_a_request_that_cannot_be_read_is_left_alone(tmp_path: Path, layouts: Path, text: str) -> None:
    gpus = Gpus(OFF)
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))
        with working(cluster, client, layouts, gpus):
            annotations = {"metadata": {"annotations": {MIG_WANTED_ANNOTATION: text}}}
            await cluster.client.patch_merge(NODES, "a", annotations)
            await ask(cluster.client, MigRequest("all-disabled", "1"))
            assert (await answered(cluster.client, "1")).error == ""


def test_layouts_that_are_not_there_are_an_answer(tmp_path: Path) -> None:
    result = answer(MigRequest("x", "1"), tmp_path / "none.yaml", lambda: Gpus(OFF))
    assert "cannot read the layouts" in result.error


def test_a_driver_that_is_not_there_is_an_answer(layouts: Path) -> None:
    result = answer(MigRequest("all-disabled", "1"), layouts, lambda: NoHardware("no driver here"))
    assert result.error == "no driver here"
