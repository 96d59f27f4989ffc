"""`purser why` beside the real kube-scheduler: what it suggests for pods that wait is done, and they are bound.

Nodes are a lab's, with emulated kubelets; API server, controllers and kube-scheduler are real, with all filters.
"""

import asyncio
import os
import random
from pathlib import Path

import pytest

from purser.lab.cluster import Lab
from purser.lab.controlplane.programs import Programs
from purser.lab.settings import LabSettings, node_choices
from tests.lab.lab_cluster import check_invariants
from tests.scenarios.suggestions import Suggested

from .test_lab_on_real_control_plane import EVERYTHING, RealLabCluster, folder_of, quiet_logs

__all__ = ["quiet_logs"]

PODS = int(os.environ.get("PURSER_WHY_PODS", "8"))
"""That wait. A thousand by hand."""

SEED = os.environ.get("PURSER_WHY_SEED", "1")


@pytest.mark.timeout(max(400, 30 * PODS))
async def test_each_suggestion_lets_the_real_kube_scheduler_bind_the_pod(tmp_path: Path, quiet_logs: None) -> None:
    programs = Programs.find(folder_of(tmp_path / "assets", EVERYTHING))
    settings = LabSettings(node_choices(["t4-4:2", "mixed-4"]), programs=programs, probe_interval_s=0.1)
    async with Lab(settings) as lab, asyncio.timeout(max(360, 30 * PODS)):
        await lab.ready()
        cluster = RealLabCluster(lab, "waiting")
        await cluster.set_up()
        suggested = Suggested(cluster, random.Random(SEED), all_filters=True)
        await suggested.play(PODS)
        print(dict(suggested.done))
        assert suggested.done["amount"]
        await check_invariants(lab)
