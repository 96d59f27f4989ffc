import logging

import pytest
import structlog

from tests.conftest import log_plainly
from tests.lab.lab_cluster import ready_lab, scenario_cluster


@pytest.fixture
def kubelet_version():
    """Which kubelet the lab's node emulates; test modules override it."""
    return "v1.36.2"


@pytest.fixture
def quiet_logs():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    log_plainly()


@pytest.fixture
async def lab(kubelet_version, quiet_logs):
    async with ready_lab(kubelet_version) as lab:
        yield lab


@pytest.fixture
async def cluster(lab):
    async with scenario_cluster(lab) as cluster:
        yield cluster


@pytest.fixture
def hollow_count():
    """Enough to be sampled by a scheduler that samples."""
    return 500
