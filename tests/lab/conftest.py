import asyncio
import logging
from itertools import count

import pytest
import structlog

from purser.lab.cluster import Lab
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests.lab.lab_cluster import LabCluster

_numbers = count(1)


@pytest.fixture
def kubelet_version():
    """Which kubelet the lab's node emulates; test modules override it."""
    return "v1.36.2"


@pytest.fixture
def quiet_logs():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


@pytest.fixture
async def lab(kubelet_version, quiet_logs):
    nodes = node_choices(["a100-40gb-8"])
    settings = LabSettings(nodes, kubelet=KubeletSection(version=kubelet_version), probe_interval_s=0.1)
    async with Lab(settings) as lab:
        async with asyncio.timeout(60):
            await lab.ready()
        yield lab


@pytest.fixture
async def cluster(lab):
    cluster = LabCluster(lab, f"scenario-{next(_numbers)}")
    await cluster.set_up()
    yield cluster
    await cluster.tear_down()


@pytest.fixture
def hollow_count():
    """Enough to be sampled by a scheduler that samples."""
    return 500
