"""A node with 8 GPUs and many pods loses a GPU: what that costs the pods, the API server and whoever reads events."""

import itertools

import msgspec
import pytest
from tests.tiers import IS_LONG
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import eventually, node_writes
from tests.unit.agent.emulated_kubelet import Rejected

from purser.core.model import NodeInventory
from purser.lab.driver import SimulatedDriver

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

PODS_OF_NODE = 100 if IS_LONG else 20
XIDS, AT_ONCE = 300 if IS_LONG else 120, 20
"""More than the simulated driver keeps; and before the agent has heard of all of them."""


@pytest.fixture
def driver(folder):
    return SimulatedDriver.create(folder / "driver", NODE, "a100-40gb-8")


@pytest.mark.timeout(900)  # a hundred pods in the gate
async def test_a_lost_gpu_costs_at_most_one_admission_two_writes_and_one_event(world, kubelet, api):
    lost, last, rejected = world.uuids[3], world.uuids[7], []
    turns, heard, opened = itertools.cycle(world.uuids), [], world.driver.open()
    wait_event = opened.wait_event

    def heard_event(timeout_ms):
        if (event := wait_event(timeout_ms)) is not None:
            heard.append(event)
        return event

    opened.wait_event = heard_event
    settings = {"reopen_interval_s": 5, "slots": 100}  # each look is a process, all run on two cores
    async with world.agent(opened, **settings) as agent:
        await eventually(agent.ready)
        await eventually(lambda: _healthy(world, 8))
        with node_writes(api, repeats=False) as written:
            for number in range(PODS_OF_NODE):
                if number == PODS_OF_NODE // 2:
                    world.driver.lose_gpu(lost)
                healthy = await _inventory(world)
                uuid = next(each for each in turns if each in healthy)  # as the scheduler: by what is published
                await world.pod(f"p{number}", part("main", uuid, memory_mib=100, cores_percent=0))
                try:
                    await kubelet.admit(f"default/p{number}", [("main", 1)])
                except Rejected:
                    rejected.append((uuid, number))
                    await eventually(lambda: _healthy(world, 7))  # on a busy machine many pods come meanwhile
            await eventually(lambda: _healthy(world, 7))
            await eventually(lambda: _events(world, "GpuUnhealthy"))
        assert [uuid for uuid, _ in rejected] in ([], [lost])
        assert await agent.metric("purser_device_healthy", uuid=lost) == 0
        _check_writes(written)
        heard.clear()
        with node_writes(api, repeats=False) as written:
            for number in range(XIDS):
                if number % AT_ONCE == 0:
                    await eventually(lambda number=number: len(heard) >= number)
                world.driver.inject_xid(lost, (48, 63, 74, 79, 94, 119)[number % 6])
            told = await eventually(lambda: _told_of_another(world, last))
            await eventually(lambda: _healthy(world, 6))
        assert [lost in message for message in sorted(told, key=lambda each: last in each)] == [True, False]
        _check_writes(written)


def _check_writes(paths):
    inventories = [path for path in paths if not path.endswith("/status")]
    assert len(inventories) <= 2
    assert len(paths) - len(inventories) <= 4, "amounts and condition"


async def _inventory(world):
    devices = msgspec.json.decode(await world.inventory_text(), type=NodeInventory).devices
    return [device.uuid for device in devices if device.healthy]


async def _healthy(world, count):
    return len(await _inventory(world)) == count


async def _told_of_another(world, gpu):
    """When its Xid is reported, all before it has been judged. What is reported while the agent reopens the driver, as
    it does to find a lost GPU again, nobody hears: so it is reported once more."""
    world.driver.inject_xid(gpu, 119)
    return await _events(world, "GpuUnhealthy", 2)


async def _events(world, reason, count=1):
    found = [message for told, message in await world.events(NODE) if told == reason]
    return found if len(found) >= count else []
