"""What this agent makes of kubelet's PodResources API."""

import pytest
from tests.unit.agent.builders import part
from tests.unit.agent.conftest import eventually, uuids_of

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]


async def test_no_pod_fails_because_somebody_asks_kubelet_too_often(world, kubelet):
    async with world.agent() as agent:
        await eventually(agent.ready)
        await world.pod("p", part("main", world.uuids[0]))
        kubelet.rejects = 4
        await kubelet.admit("default/p", [("main", 1)])
        assert (uuids_of(kubelet.pods["default/p"]["main"]), kubelet.rejects) == ([world.uuids[0]], 0)
