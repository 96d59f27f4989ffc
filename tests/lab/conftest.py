import asyncio
from itertools import count

import pytest
import structlog
from tests.lab.lab_cluster import LabCluster

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices

_numbers = count(1)


@pytest.fixture
async def lab():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    settings = LabSettings(node_choices(["a100-40gb-8"]), probe_interval_s=0.1)
    async with Lab(settings) as lab, asyncio.timeout(120):
        await lab.ready()
        yield lab
    structlog.reset_defaults()


@pytest.fixture
async def cluster(lab):
    cluster = LabCluster(lab, f"scenario-{next(_numbers)}")
    await cluster.set_up()
    yield cluster
    await cluster.tear_down()


@pytest.fixture
def hollow_count():
    return 500
