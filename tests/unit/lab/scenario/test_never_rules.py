"""What must never be is seen in the watch stream, even when it is over before anybody could look."""

import asyncio
import time

import pytest
from tests.unit.kube.servers import ManualClock, api_server, eventually

from purser.kube.resources import NODES
from purser.lab.scenario.never_rules import NeverRules
from purser.lab.scenario.spec import NeverRule

CORDONED = {"spec": {"unschedulable": True}}


@pytest.fixture
async def client(tmp_path):
    async with api_server(tmp_path / "k") as (_, client):
        for name in ("a", "b"):
            await client.create(NODES, {"metadata": {"name": name}})
        yield client


async def cordon(client, name, value):
    await client.patch_merge(NODES, name, {"spec": {"unschedulable": value}})


async def broken(rules):
    deadline = time.monotonic() + 60
    while not rules.broken():
        assert time.monotonic() < deadline, "nothing was seen"
        await asyncio.sleep(0.01)
    return rules.broken()


async def test_a_moment_is_enough(client):
    async with NeverRules(client) as rules:
        await rules.begin(NeverRule(kind="Node", match=CORDONED))
        assert not rules.broken()
        await cordon(client, "a", True)
        await cordon(client, "a", None)
        assert "1 Node with" in await broken(rules)


async def test_as_many_as_may_be_are_no_matter(client):
    async with NeverRules(client) as rules:
        await rules.begin(NeverRule(kind="Node", match=CORDONED, more_than=1))
        for _ in range(2):
            await cordon(client, "a", True)
            await cordon(client, "a", None)
        assert not rules.broken()
        await cordon(client, "a", True)
        await cordon(client, "b", True)
        assert "but the limit is 1: a, b" in await broken(rules)


async def test_what_may_be_for_a_while_may_not_stay(client):
    clock = ManualClock()
    async with NeverRules(client, clock) as rules:
        await rules.begin(NeverRule(kind="Node", match=CORDONED, longer_than_s=10))
        [rule] = rules._rules
        await cordon(client, "a", True)
        await eventually(lambda: list(rule._now) == ["a"])
        clock.advance(9)
        await cordon(client, "a", None)
        await eventually(lambda: not rule._now)
        clock.advance(9)
        assert not rules.broken()
        await cordon(client, "b", True)
        await eventually(lambda: list(rule._now) == ["b"])
        clock.advance(9)
        assert not rules.broken()
        clock.advance(1)
        assert "for 10 s, but the limit is 0: b" in rules.broken()


async def test_what_goes_is_missed_and_other_names_are_not(client):
    async with NeverRules(client) as rules:
        await rules.begin(NeverRule(kind="Node", names=("a*",), deleted=True))
        await client.delete(NODES, "b")
        await cordon(client, "a", True)
        assert not rules.broken()
        await client.delete(NODES, "a")
        assert "1 Node removed, but the limit is 0: a" in await broken(rules)


async def test_what_is_so_already_counts(client):
    await cordon(client, "b", True)
    async with NeverRules(client) as rules:
        await rules.begin(NeverRule(kind="Node", match=CORDONED))
        assert "b" in rules.broken()
