"""Preemption where kube-scheduler's dry run finds victims (one slot a card), and where it finds none (ten slots)."""

import pytest

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.pods import share, whole
from tests.scenarios.preemption import preempt_one


@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        pytest.param(share(9000, 0), 10, id="by memory, 10 slots"),
        pytest.param(whole(), 1, id="whole cards, 1 slot", marks=pytest.mark.gate),
        pytest.param(share(9000, 0), 1, id="by memory, 1 slot", marks=pytest.mark.gate),
        pytest.param(whole(), 10, id="whole cards, 10 slots", marks=pytest.mark.gate),
    ],
)
async def test_exactly_who_has_to_go_goes_once_though_the_replica_comes_back(quiet_logs, limits, slots):
    async with Lab(LabSettings(node_choices(["t4-4"]), slots=slots)) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = LabCluster(lab, "preempted")
        await cluster.set_up()
        await preempt_one(cluster, limits)
