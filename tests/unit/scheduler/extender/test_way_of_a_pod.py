"""A reader can follow one pod through few files, in the order in which the documentation has them."""

import re
import sys
from collections.abc import Awaitable
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TypeVar
from unittest.mock import patch

import msgspec
from tests.unit.scheduler.extender_world import World, replica, server

import purser
from purser.core.placement import PolicySettings, kernels
from purser.core.placement.kernels import plain
from purser.kube.objects import Pod
from purser.scheduler.extender_api import ExtenderFilterResult
from purser.scheduler.extender_wire import decode_args, decode_binding

T = TypeVar("T")

SRC = Path(purser.__file__).parent
LISTED = Path(__file__).parents[4] / "docs" / "architecture.md"

MOST_CORE = 15
"""Modules of core between a filter request and its answer."""

MOST_CORE_BIND = 28
"""The same of a bind, which also enters the grant, signs it, and writes it in the words that the pod uses."""

NAMES = ["a", "b", "c", "full"]
REPLAN = "core/placement/policies/plan.py"


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
        async with server() as api, replica(api, policy=PolicySettings()) as world:
            way = Way(world)
            for name in "abc":
                await world.add_node(name, cards=8)
            await world.add_node("full", memory=100)
            for number in range(40):  # as long as pods are few, each makes policies plan anew
                assert not await world.bind(await world.add_pod(f"other{number}"), "a")
                pod = await world.add_pod(f"p{number}")
                seen, answer = await way.filter(pod, NAMES)
                bound = await way.bind(pod, answer.node_names[0])
                refused, none = await way.filter(await world.add_pod(f"refused{number}"), ["full"])
                another, some = await way.filter(await world.add_pod(f"another{number}", 3333 + number), NAMES)
                assert some.node_names and not none.node_names
                if number and REPLAN not in {*seen, *another}:
                    break
            for number in range(40):
                replanned, _ = await way.filter(await world.add_pod(f"new{number}", 4444 + number), NAMES)
                if REPLAN in replanned:
                    break
    order = listed("filter", "core")
    assert max(map(len, (seen, another, refused))) <= MOST_CORE
    assert [name for name in order if name in seen] == seen
    assert [name for name in order if name in refused] == refused
    assert REPLAN in replanned
    assert {*another, *replanned} <= set(order)
    assert len(bound) <= MOST_CORE_BIND
    assert [name for name in listed("bind", "core") if name in bound] == bound


async def test_the_files_of_the_scheduler_are_listed_in_the_order_of_a_filter() -> None:
    order = listed("filter", "scheduler")
    assert all((SRC / path).exists() for path in order)
    async with server() as api, replica(api) as world:
        await world.add_node("a")
        seen, _ = await Way(world, "scheduler").filter(await world.add_pod("p"), ["a"])
    assert [name for name in seen if name in order] == order[order.index("scheduler/extender_wire.py") :]
