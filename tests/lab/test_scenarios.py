"""The scenarios on the embedded lab: kubelet and kube-scheduler are stand-ins, Purser is what runs in production."""

import pytest
import pytest_asyncio

from tests.lab.lab_cluster import ready_lab, scenario_cluster
from tests.scenarios.suite import *  # noqa: F403

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab():
    async with ready_lab("v1.36.2") as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(lab, quiet_logs):
    async with scenario_cluster(lab) as cluster:
        yield cluster
