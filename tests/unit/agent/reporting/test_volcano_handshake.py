"""The sign of life that Volcano's older releases want of a node with vGPUs."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.unit.agent.builders import NODE
from tests.unit.agent.conftest import eventually, node_writes

from purser.agent.reporting.volcano_handshake import MIN_ANSWER_INTERVAL_S, VolcanoHandshake
from purser.core.vendors.volcano_nodes import VGPU_HANDSHAKE_ANNOTATION, VGPU_REGISTER_ANNOTATION, awaits_answer
from purser.kube.clock import SystemClock
from purser.kube.resources import NODES

REQUESTING, DELETED = "Requesting_2026.06.08 15:47:16", "Deleted_2026.06.08 15:48:17"

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


class MovedClock(SystemClock):
    """Moved by hand."""

    at_s = 0.0

    def monotonic(self) -> float:
        return self.at_s

    def now(self) -> datetime:
        return datetime(2026, 6, 8, 15, 47, 20, tzinfo=UTC)


async def say(world, text, register=""):
    said = {VGPU_HANDSHAKE_ANNOTATION: text, VGPU_REGISTER_ANNOTATION: register}
    await world.client.patch_merge(NODES, NODE, {"metadata": {"annotations": said}})


async def said(world):
    return (await world.client.get(NODES, NODE)).metadata.annotations.get(VGPU_HANDSHAKE_ANNOTATION)


async def test_each_question_is_answered_but_not_more_often_than_volcanos_plugin_answers(world):
    """Volcano asks again at once. An answer at once would be a write by both for each of its rounds."""
    clock = MovedClock()
    handshake = VolcanoHandshake(world.client, clock, asyncio.Event())
    answer = "Reported 2026-06-08 15:47:20 +0000 UTC"
    asked = (0, REQUESTING, answer), (1, REQUESTING, REQUESTING), (MIN_ANSWER_INTERVAL_S - 1, DELETED, DELETED)
    for at_s, text, then in (*asked, (MIN_ANSWER_INTERVAL_S, DELETED, answer), (2 * MIN_ANSWER_INTERVAL_S, "", answer)):
        clock.at_s = at_s
        await say(world, text)
        await handshake.answer(await world.client.get(NODES, NODE))
        assert await said(world) == then
    await say(world, None, None)


async def test_who_is_not_asked_writes_nothing(world, api):
    handshake = VolcanoHandshake(world.client, MovedClock(), asyncio.Event())
    for text, register in ((None, ""), ("Reported 2026-06-08", ""), (REQUESTING, None)):
        await say(world, text, register)
        with node_writes(api) as written:
            await handshake.answer(await world.client.get(NODES, NODE))
        assert not written
    await say(world, None, None)
    assert awaits_answer({VGPU_HANDSHAKE_ANNOTATION: "", VGPU_REGISTER_ANNOTATION: ""})


async def test_an_agent_answers_as_long_as_it_runs(world, kubelet, monkeypatch):
    monkeypatch.setattr("purser.agent.reporting.volcano_handshake.MIN_ANSWER_INTERVAL_S", 0.3)
    async with world.agent(probe_interval_s=60) as agent:
        await eventually(agent.ready)
        assert await said(world) is None
        await say(world, "")
        for text in (DELETED, REQUESTING, REQUESTING):
            # Alone: the registration stays as the agent wrote it, so that nothing else wakes the agent.
            asks = {VGPU_HANDSHAKE_ANNOTATION: text}
            await world.client.patch_merge(NODES, NODE, {"metadata": {"annotations": asks}})

            async def answered():
                return (await said(world)).startswith("Reported ")

            await eventually(answered)
    await say(world, None, None)
