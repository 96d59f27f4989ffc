"""A GPU that is lost stays on its node, and its pods' grants with it, whatever restarts."""

import pytest

from tests.lab.lab_cluster import ready_lab, scenario_cluster
from tests.scenarios.actions import (
    cards,
    check_books,
    create,
    hears_of_its_gpu,
    offers,
    reports_unhealthy,
    running,
)
from tests.scenarios.pods import pod, share
from tests.scenarios.suite import SLOTS

pytestmark = pytest.mark.gate


async def test_an_agent_that_starts_while_a_gpu_is_lost_knows_which_one_it_is(quiet_logs):
    async with ready_lab("v1.36.2") as lab, scenario_cluster(lab) as cluster:
        await offers(cluster, SLOTS)
        await create(cluster, pod(cluster, "holder", share()))
        lost = cluster.uuids.index(cards((await running(cluster, ["holder"]))["holder"])[0])
        await cluster.lose_gpu(cluster.gpu_node, lost)
        await reports_unhealthy(cluster, {cluster.uuids[lost]})
        await cluster.kill_agent(cluster.gpu_node)
        await offers(cluster, 0)
        await cluster.start_agent(cluster.gpu_node)
        await offers(cluster, SLOTS - 10)
        await reports_unhealthy(cluster, {cluster.uuids[lost]})
        await hears_of_its_gpu(cluster, "holder", True)
        await check_books(cluster)
        await cluster.recover_gpu(cluster.gpu_node, lost)
        await offers(cluster, SLOTS)
        await hears_of_its_gpu(cluster, "holder", False)
