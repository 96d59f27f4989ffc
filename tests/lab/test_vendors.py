"""A pod for another vendor's devices in a whole lab: webhooks, scheduler, lock, and the vendor's device plugin."""

import asyncio

import pytest

from purser.kube.errors import KubeError
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.hollow import HollowNodes
from purser.lab.settings import LabSettings
from tests.contract.client import until

pytestmark = pytest.mark.gate

SHARE = {"hygon.com/dcunum": "1", "hygon.com/dcumem": "1000", "hygon.com/dcucores": "10"}
RECORD, PHASE = "hami.io/dcu-devices-allocated", "hami.io/bind-phase"


async def test_pods_for_a_vendors_devices_come_one_by_one_and_run():
    nodes = HollowNodes(name="dcu", gpus=2, family="Hygon DCU")
    async with Lab(LabSettings((), hollow=(nodes,), probe_interval_s=0.5)) as lab, asyncio.timeout(120):
        await lab.ready()
        main = {"name": "main", "image": "busybox", "resources": {"limits": SHARE}}
        for name in ("one", "two", "three"):
            await lab.client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [main]}}, "default")

        async def running():
            pods = (await lab.client.list(PODS, "default")).items
            return len(pods) == 3 and all(pod.status.phase == "Running" for pod in pods)

        await until("three pods run", running)
        for pod in (await lab.client.list(PODS, "default")).items:
            annotations = pod.metadata.annotations
            assert annotations[RECORD].startswith("dcu-0-DCU-")
            assert annotations[PHASE] == "success"
        assert "hami.io/mutex.lock" not in (await lab.client.get(NODES, "dcu-0")).metadata.annotations
        with pytest.raises(KubeError, match="only Purser's scheduler"):
            forged = {"metadata": {"name": "four", "annotations": {RECORD: "x"}}, "spec": {"containers": [main]}}
            await lab.client.create(PODS, forged, "default")
