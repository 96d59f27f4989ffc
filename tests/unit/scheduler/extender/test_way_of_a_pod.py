"""A reader can follow one pod through few files, in the order in which the documentation has them."""

import re
import sys
from pathlib import Path
from types import FrameType
from unittest.mock import patch

from tests.unit.scheduler.extender_world import World, replica, server

import purser
from purser.core.placement import PolicySettings, kernels
from purser.core.placement.kernels import plain
from purser.scheduler.extender_api import ExtenderArgs, ExtenderFilterResult

SRC = Path(purser.__file__).parent
LISTED = Path(__file__).parents[4] / "docs" / "architecture.md"

MOST_CORE = 15
"""Modules of core between a filter request and its answer."""

MOST_CORE_REFUSED = 18
"""The same where no node fits: the sentence that says why takes some more."""


def listed(room: str) -> list[str]:
    """The files of a filter's way in a room, as the documentation lists them."""
    _, _, rows = LISTED.read_text().partition(f"| `filter`, in `{room}/` | |\n")
    found = re.findall(r"`([\w/]+\.py)`", rows.partition("\n\n")[0])
    return [path if path.startswith("core/") else f"{room}/{path}" for path in found]


class Way:
    """The modules of a room that a filter request comes past, in this order."""

    def __init__(self, world: World, room: str = "core") -> None:
        self._world = world
        self._room = f"{SRC}/{room}/"
        self._seen: list[str] = []

    async def of(self, asked: ExtenderArgs) -> tuple[list[str], ExtenderFilterResult]:
        self._seen = []
        sys.setprofile(self._note)
        answer = await self._world.extender.filter(asked)
        sys.setprofile(None)
        return self._seen, answer

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(self._room) and frame.f_code.co_name != "<genexpr>":
            name = str(Path(path).relative_to(SRC))
            if name not in self._seen:
                self._seen.append(name)


async def test_a_filter_comes_past_few_files_and_all_of_them_are_listed_in_its_order() -> None:
    with patch.object(kernels, "used", plain):
        async with server() as api, replica(api, policy=PolicySettings()) as world:
            way = Way(world)
            for name in "abc":
                await world.add_node(name, cards=8)
            await world.add_node("full", memory=100)
            for number in range(40):  # as long as pods are few, each makes policies plan anew
                assert not await world.bind(await world.add_pod(f"other{number}"), "a")
                pod = await world.add_pod(f"p{number}")
                seen, answer = await way.of(ExtenderArgs(pod, ["a", "b", "c", "full"]))
                assert answer.node_names
                assert not await world.bind(pod, answer.node_names[0])
                refused, none = await way.of(ExtenderArgs(await world.add_pod(f"refused{number}"), ["full"]))
                assert not none.node_names
                if len(seen) <= MOST_CORE and len(refused) <= MOST_CORE_REFUSED:
                    break
            another, _ = await way.of(ExtenderArgs(await world.add_pod("another", 3333), ["a", "b", "c", "full"]))
    assert len(seen) <= MOST_CORE
    assert len(refused) <= MOST_CORE_REFUSED
    order = listed("core")
    assert {"core/placement/policies/plan.py", "core/placement/policies/scarcity.py"} <= set(another)
    assert set(another) <= set(order)
    assert [name for name in order if name in seen] == seen
    assert [name for name in order if name in refused] == refused


async def test_the_files_of_the_scheduler_are_listed_in_the_order_of_a_filter() -> None:
    order = listed("scheduler")
    assert all((SRC / path).exists() for path in order)
    from_extender = order[order.index("scheduler/extender/extender.py") :]
    async with server() as api, replica(api) as world:
        await world.add_node("a")
        seen, _ = await Way(world, "scheduler").of(ExtenderArgs(await world.add_pod("p"), ["a"]))
    assert [name for name in seen if name in order] == from_extender
