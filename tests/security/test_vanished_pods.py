"""Pods' objects vanish while their containers run on: etcd was restored from a backup. What kubelet lists is held."""

import json
import shutil

import pytest

from purser.agent.allocation import janitor
from purser.agent.reporting import disputes
from purser.core.grant.disputes import HeldReason
from tests.unit.agent import conftest
from tests.unit.agent.builders import part
from tests.unit.agent.conftest import eventually
from tests.unit.agent.emulated_kubelet import Rejected

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

# What an agent runs in, for these tests as well.
api, client, folder, driver = conftest.api, conftest.client, conftest.folder, conftest.driver
kubelet, world, short_waits = conftest.kubelet, conftest.world, conftest.short_waits

WHOLE = {"memory_mib": 15_000, "cores_percent": 100}


def booked(world):
    checkpoint = (world.settings["state_dir"] / "agent-checkpoint.json").read_text()
    return [pod["grant"]["pod"] for pod in json.loads(checkpoint)["pods"]]


async def is_running(world, kubelet, agent, name="holder"):
    await eventually(agent.ready)
    await world.pod(name, part("main", world.uuids[0], **WHOLE))
    await kubelet.admit(f"default/{name}", [("main", 1)])


async def is_refused(world, kubelet, match, name="next"):
    await world.pod(name, part("main", world.uuids[0], **WHOLE))
    with pytest.raises(Rejected, match=match):
        await kubelet.admit(f"default/{name}", [("main", 1)])
    kubelet.remove(f"default/{name}")
    await world.delete_pod(name)


async def test_a_pod_whose_object_vanished_stays_in_the_book_until_kubelet_lets_go(world, kubelet, monkeypatch):
    monkeypatch.setattr(janitor, "UNLISTED_CHECK_PERIOD_S", 0.05)
    async with world.agent() as agent:
        await is_running(world, kubelet, agent)
        await world.delete_pod("holder")
        await is_refused(world, kubelet, "another pod was admitted first")
        assert booked(world) == ["holder"]
    async with world.agent() as agent:
        await eventually(agent.ready)
        await is_refused(world, kubelet, "another pod was admitted first")
        kubelet.remove("default/holder")
        await eventually(lambda: booked(world) == [])


async def test_so_does_one_whose_object_vanished_while_the_agent_was_away(world, kubelet):
    async with world.agent() as agent:
        await is_running(world, kubelet, agent)
    await world.delete_pod("holder")
    for _ in range(2):  # what one agent remembers beside the book, the next does not know
        async with world.agent() as agent:
            await eventually(agent.ready)
            await is_refused(world, kubelet, "another pod was admitted first")


async def test_without_the_agents_state_what_kubelet_lists_is_held_all_the_same(world, kubelet):
    async with world.agent() as agent:
        await is_running(world, kubelet, agent)
    await world.delete_pod("holder")
    shutil.rmtree(world.settings["state_dir"])
    async with world.agent() as agent:
        await eventually(agent.ready)
        await is_refused(world, kubelet, "kubelet lists device .* that pod no longer exists on the API server")
        kubelet.remove("default/holder")
        await world.pod("later", part("main", world.uuids[0], **WHOLE))
        await kubelet.admit("default/later", [("main", 1)])


async def test_a_namesake_that_was_created_since_gets_nothing_of_it(world, kubelet):
    """A StatefulSet creates its pod again, and kubelet lists both under one name."""
    async with world.agent() as agent:
        await is_running(world, kubelet, agent)
        await world.delete_pod("holder")
        held = kubelet.pods.pop("default/holder")
        kubelet.namesakes = [("default/holder", held)]
        await is_refused(world, kubelet, "another pod was admitted first", "holder")
        kubelet.namesakes = []
        kubelet.held.pop("default/holder", None)
        await world.pod("holder", part("main", world.uuids[0], **WHOLE))
        await kubelet.admit("default/holder", [("main", 1)])


async def test_the_agent_reports_it_to_the_scheduler(world, kubelet, monkeypatch):
    monkeypatch.setattr(disputes, "TEARDOWN_TIMEOUT_S", 0.3)
    async with world.agent() as agent:
        await is_running(world, kubelet, agent)
        await world.delete_pod("holder")
        found = await eventually(world.disputes)
        assert [(each.key, each.why, each.uuids) for each in found.held] == [
            ("default/holder", HeldReason.ENDED, (world.uuids[0],)),
        ]
    monkeypatch.setattr(disputes, "TEARDOWN_TIMEOUT_S", 600.0)
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.published_again()
        assert await world.disputes() == found  # the next agent does not take it back
        kubelet.remove("default/holder")
        await world.pod("other", counts={"main": 1})
        await world.delete_pod("other")  # a reason to look
        await eventually(lambda: _is_silent(world))


async def _is_silent(world):
    return await world.disputes() is None
