"""Volcano's scheduler places pods, Purser's agents and book serve them: from the webhook to the container, over
restarts and lost GPUs."""

import asyncio

import pytest

from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.contract.client import Api, until

from .test_switchers import Switch
from .volcano import HANDSHAKE, IDS, REGISTER, VCORES, VMEMORY, VNUMBER, Volcano

pytestmark = pytest.mark.gate
NODE = "t4-4-0"


class Beside(Switch):
    """The same, of one node."""

    def __init__(self, lab, api):
        self.lab, self.api, self.uuids = lab, api, list(lab.nodes[NODE].driver.uuids)

    async def pod(self, name, *limits, scheduler="volcano"):
        names = ["main", "second", "third"]
        containers = [
            {"name": each, "image": "busybox", "resources": {"limits": asked}}
            for each, asked in zip(names, limits, strict=False)
        ]
        spec = {"schedulerName": scheduler, "containers": containers}
        answer = await self.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        assert not any("schedulerName" in text for text in answer.ok().headers.getall("Warning", []))

        async def runs():
            (found,) = [each for each in await self.pods() if each["metadata"]["name"] == name]
            assert found["status"].get("phase") != "Failed", found
            return found if found["status"].get("phase") == "Running" else None

        return await until(f"{name} runs", runs)


async def test_volcano_places_vgpus_and_purser_serves():
    settings = LabSettings(node_choices(["t4-4"]), probe_interval_s=0.1, served_scheduler_names=("volcano",))
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        api = Api(lab.kubeconfig, embedded=True)
        await api.connect()
        beside = Beside(lab, api)

        async def registered(count):
            text = (await lab.client.get(NODES, NODE)).metadata.annotations[REGISTER]
            return text.count(":") == count

        await lab.client.patch_merge(NODES, NODE, {"metadata": {"annotations": {REGISTER: ""}}})
        await until("the agent registers the GPUs", lambda: registered(4))
        volcano = asyncio.create_task(Volcano(lab.client).run())
        share = {VNUMBER: 1, VMEMORY: 6000, VCORES: 30}
        for name in ("a", "b"):  # Volcano begins with the last GPU
            pod = await beside.pod(name, share)
            assert beside.cards(pod) == [3]
            assert beside.env(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"] == "6000m"
            record = pod["metadata"]["annotations"]
            assert record[IDS] == f"{beside.uuids[3]},NVIDIA,6000,30:"
            assert record["volcano.sh/bind-phase"] == "success"
        two = await beside.pod("two", share, {}, share)
        assert [beside.cards(two, each) for each in ("main", "third")] == [[2], [2]]
        assert two["metadata"]["annotations"][IDS].count(beside.uuids[2]) == 2
        own = await beside.pod("own", {"nvidia.com/gpu": 1}, scheduler="default-scheduler")
        (taken,) = beside.cards(own)
        assert taken in (0, 1)
        # Volcano knows nothing of that pod: it counts both GPUs as idle, and begins with 1.
        whole = await beside.pod("whole", {VNUMBER: 1, VCORES: 100})
        assert beside.cards(whole) == [1 - taken]
        assert beside.uuids[1 - taken] in whole["metadata"]["annotations"][IDS]
        await lab.kill_scheduler()
        await lab.start_scheduler()
        for name in ("a", "b"):
            await lab.client.delete(PODS, name, "default", grace_period_seconds=0)
        lab.nodes[NODE].driver.lose_gpu(3)
        await until("the lost GPU is registered no more", lambda: registered(3))
        assert beside.cards(await beside.pod("small", {VMEMORY: 3000})) == [2]
        volcano.cancel()
        await api.close()


async def test_volcanos_releases_that_ask_nodes_for_a_sign_of_life_find_them(monkeypatch):
    """The agent answers, sooner than in production, and again when it is asked again: a node that is dropped comes
    back."""
    monkeypatch.setattr("purser.agent.reporting.volcano_handshake.MIN_ANSWER_INTERVAL_S", 0.3)
    settings = LabSettings(node_choices(["t4-4"]), probe_interval_s=0.1, served_scheduler_names=("volcano",))
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        api = Api(lab.kubeconfig, embedded=True)
        await api.connect()
        beside = Beside(lab, api)
        known = {REGISTER: "", HANDSHAKE: "Deleted_2026.03.01 00:00:00"}
        await lab.client.patch_merge(NODES, NODE, {"metadata": {"annotations": known}})
        volcano = Volcano(lab.client, patience_s=4)
        running = asyncio.create_task(volcano.run())
        for name in "abc":
            pod = await beside.pod(name, {VNUMBER: 1, VMEMORY: 6000, VCORES: 30})
            assert beside.cards(pod) == [2 if name == "c" else 3]

            async def answered():
                return (await lab.client.get(NODES, NODE)).metadata.annotations[HANDSHAKE].startswith("Reported ")

            await until("the agent answers", answered)
        assert volcano.asked >= 3
        running.cancel()
        await api.close()
