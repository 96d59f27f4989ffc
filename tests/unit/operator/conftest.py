"""What several tests of the operator begin with."""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from tests.conftest import log_plainly
from tests.unit.operator.embedded import Embedded, define_policies, embedded


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    """An API server that knows policies."""
    async with embedded(tmp_path) as found:
        await define_policies(found.client)
        yield found


@pytest.fixture
def quiet() -> Iterator[None]:
    """Only errors are logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    log_plainly()
