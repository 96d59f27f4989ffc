"""The scenarios on a real Kubernetes: what must be seen by whoever uses Purser."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from tests.cluster.purser_processes import Purser
from tests.cluster.real_scenarios import RealScenarioCluster, scenario_cluster
from tests.scenarios.pods import pod, whole
from tests.scenarios.suite import *  # noqa: F403


@pytest.fixture
async def cluster(purser: Purser) -> AsyncIterator[RealScenarioCluster]:
    async with scenario_cluster(purser) as cluster:
        yield cluster


@pytest.fixture
def hollow_count() -> int:
    """kube-scheduler would look at half of them, did its profile not say all."""
    return 300


async def test_kubectl_prints_the_warning_about_more_devices_than_any_node_has(
    cluster: RealScenarioCluster, purser: Purser
) -> None:
    real = purser.cluster
    body = json.dumps(pod(cluster, "giant", whole(9)))
    command = [real.binaries.path("kubectl"), f"--kubeconfig={real.kubeconfig}", "create", "-f", "-"]
    result = await asyncio.to_thread(subprocess.run, command, input=body, capture_output=True, text=True)
    assert result.returncode == 0
    assert "Warning: a container requests 9 GPUs, but the largest node has 8" in result.stderr
