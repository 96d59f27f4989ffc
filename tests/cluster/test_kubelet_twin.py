"""The emulated kubelet does what the real one does: the same plugin, the same pods, one step after another."""

import asyncio
import gc
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from tests.conftest import log_plainly

from .kubelet_twin.agreement import Pair
from .kubelet_twin.kubelets import EmulatedKubelet, RealKubelet
from .kubelet_twin.scenarios import SCENARIOS
from .kubelet_twin.steps import Scenario
from .kubernetes import RealCluster

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.oldest]


def name_of(scenario: Scenario) -> str:
    config = scenario.config
    policy = f"{config.get('topologyManagerPolicy', 'none')}/{config.get('topologyManagerScope', 'container')}"
    return f"{policy}, {config.get('cpuManagerPolicy', 'none')} CPUs: {scenario.title}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(real_cluster: RealCluster) -> AsyncIterator[Pair]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # Of a short path, for sockets' own is limited to 107 characters.
    with tempfile.TemporaryDirectory(prefix="purser-twin-", dir="/tmp") as folder:
        async with Client(ClusterConfig.load(real_cluster.kubeconfig)) as client:
            version = (await client.version())["gitVersion"]
            emulated = EmulatedKubelet("emulated-0", version, Path(folder), client)
            pair = Pair(client, (RealKubelet(real_cluster), emulated))
            try:
                await pair.start()
                yield pair
            finally:
                await pair.stop()
                # Servers in cycles are to end while there is a loop for it.
                gc.collect()
                await asyncio.to_thread(real_cluster.delete, "node", emulated.node)
                await asyncio.to_thread(real_cluster.restart_kubelet, {})
    log_plainly()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
async def test_both_kubelets_agree_after_every_step(pair: Pair, scenario: Scenario) -> None:
    await pair.play(scenario)
