"""What most tests of the scheduler begin with."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.scheduler.extender_world import World, replica, server


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """One replica before an API server of its own, whose decisions are replayed at the test's end."""
    async with server() as api, replica(api) as found:
        yield found
