import asyncio
import logging
from itertools import count

import pytest
import structlog

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests.lab.lab_cluster import LabCluster

_numbers = count(1)


@pytest.fixture
async def lab():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    settings = LabSettings(node_choices(["a100-40gb-8"]), probe_interval_s=0.1)
    async with Lab(settings) as lab:
        async with asyncio.timeout(60):
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
