"""Preemption where kube-scheduler's dry run finds victims (one slot a card), and where it finds none (ten slots)."""

import asyncio

import pytest

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.pods import share, whole
from tests.scenarios.preemption import preempt_one


@pytest.mark.parametrize("slots", [10, 1])
@pytest.mark.parametrize("limits", [share(9000, 0), whole()], ids=["by memory", "whole cards"])
async def test_exactly_who_has_to_go_goes_once_though_the_replica_comes_back(quiet_logs, slots, limits):
    async with Lab(LabSettings(node_choices(["t4-4"]), slots=slots, probe_interval_s=0.1)) as lab:
        async with asyncio.timeout(60):
            await lab.ready()
        cluster = LabCluster(lab, "preempted")
        await cluster.set_up()
        await preempt_one(cluster, limits)
