"""A reader can follow one pod through few files, in the order in which the documentation has them."""

import asyncio
import re
import sys
from collections.abc import Awaitable
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TypeVar
from unittest.mock import patch

import msgspec
from tests.unit.scheduler.extender_world import World, eventually, replica, server

import purser
from purser.core.placement import PolicySettings, kernels
from purser.core.placement.kernels import plain
from purser.core.placement.policies import purser as purser_policy
from purser.kube.objects import Pod
from purser.kube.resources import NODES
from purser.scheduler.extender_api import ExtenderFilterResult
from purser.scheduler.extender_wire import decode_args, decode_binding

T = TypeVar("T")

SRC = Path(purser.__file__).parent
LISTED = Path(__file__).parents[4] / "docs" / "architecture.md"

MOST_CORE = 15
"""Modules of core between a filter request and its answer."""

MOST_CORE_BIND = 29
"""The same of a bind, which also enters the grant, signs it, writes it in the words that the pod uses, and tells it."""

NAMES = ["a", "b", "c", "full"]


def listed(verb: str, room: str) -> list[str]:
    """The files of a request's way in a room, as the documentation lists them."""
    _, _, rows = LISTED.read_text().partition(f"| `{verb}`, in `{room}/` | |\n")
    found = re.findall(r"`([\w/]+\.py)`", rows.partition("\n\n")[0])
    return [path if path.startswith("core/") else f"{room}/{path}" for path in found]


class Way:
    """The modules of a room that a request comes past, in this order, in the tasks that it starts as well."""

    def __init__(self, world: World, room: str = "core") -> None:
        self._world = world
        self._room = f"{SRC}/{room}/"
        self._is_followed = ContextVar("is_followed", default=False)
        self._seen: list[str] = []

    async def filter(self, pod: Pod, names: list[str]) -> tuple[list[str], ExtenderFilterResult]:
        body = msgspec.json.encode({"Pod": pod, "NodeNames": names})

        async def answer() -> ExtenderFilterResult:
            return await self._world.extender.filter(decode_args(body))

        return await self._of(answer())

    async def bind(self, pod: Pod, node: str) -> list[str]:
        meta = pod.metadata
        named = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        body = msgspec.json.encode(named)

        async def answer() -> str:
            return (await self._world.extender.bind(decode_binding(body))).error

        seen, error = await self._of(answer())
        assert not error
        return seen

    async def _of(self, asked: Awaitable[T]) -> tuple[list[str], T]:
        self._seen = []
        self._is_followed.set(True)
        sys.setprofile(self._note)
        answer = await asked
        sys.setprofile(None)
        self._is_followed.set(False)
        return self._seen, answer

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(self._room) and frame.f_code.co_name != "<genexpr>":
            name = str(Path(path).relative_to(SRC))
            if name not in self._seen and self._is_followed.get():
                self._seen.append(name)


async def test_a_pod_comes_past_few_files_and_all_of_them_are_listed_in_its_order() -> None:
    with patch.object(kernels, "used", plain):
        async with server() as api, replica(api, has_log=False, policy=PolicySettings()) as world:
            way, mix = Way(world), world.cache.arrivals.mix
            for name in "abc":
                await world.add_node(name, cards=8)
            await world.add_node("full", memory=100)
            for number in range(40):
                epoch = mix.epoch
                assert not await world.bind(await world.add_pod(f"other{number}"), "a")
                pod = await world.add_pod(f"p{number}")
                seen, answer = await way.filter(pod, NAMES)
                bound = await way.bind(pod, answer.node_names[0])
                refused, none = await way.filter(await world.add_pod(f"refused{number}"), ["full"])
                another, some = await way.filter(await world.add_pod(f"another{number}", 3333 + number), NAMES)
                assert some.node_names and not none.node_names
                if number and mix.epoch == epoch:  # as long as pods are few, each changes what policies plan for
                    break
    order = listed("filter", "core")
    assert max(map(len, (seen, another, refused))) <= MOST_CORE
    assert [name for name in order if name in seen] == seen
    assert [name for name in order if name in refused] == refused
    assert set(another) <= set(order)
    assert len(bound) <= MOST_CORE_BIND
    assert [name for name in listed("bind", "core") if name in bound] == bound


async def test_no_request_waits_for_a_plan() -> None:
    with patch.object(kernels, "used", plain), patch.object(purser_policy, "plan", wraps=purser_policy.plan) as made:
        async with server() as api, replica(api, has_log=False, policy=PolicySettings()) as world:
            way, order = Way(world), set(listed("filter", "core"))
            await world.add_node("a", cards=8)
            running = asyncio.create_task(world.extender.run())
            await eventually(lambda: world.extender.places_pods)
            running.cancel()

            async def past(pod: Pod, cause: str) -> None:
                nonlocal plans
                assert made.call_count > plans, f"{cause}: nothing is planned, the test shows nothing"
                plans = made.call_count
                seen, answer = await way.filter(pod, ["a"])
                assert answer.node_names
                assert len(seen) <= MOST_CORE, cause
                assert set(seen) <= order, cause
                assert made.call_count == plans, cause

            plans = 0
            await past(await world.add_pod("first"), "the first pod after the start")
            for number in range(9):
                waiting = await world.add_pod(f"other{number}", 2000)
                if made.call_count > plans:
                    break
            await past(waiting, "another mix")
            await world.add_node("b", cards=8, memory=9000)
            await past(waiting, "a node with another model")
            await world.client.delete(NODES, "b")
            await eventually(lambda: world.cache.fleet.node("b") is None)
            await past(waiting, "a node has gone")


async def test_the_files_of_the_scheduler_are_listed_in_the_order_of_a_filter() -> None:
    order = listed("filter", "scheduler")
    assert all((SRC / path).exists() for path in order)
    async with server() as api, replica(api, has_log=False) as world:
        await world.add_node("a")
        seen, _ = await Way(world, "scheduler").filter(await world.add_pod("p"), ["a"])
    assert [name for name in seen if name in order] == order[order.index("scheduler/extender_wire.py") :]
