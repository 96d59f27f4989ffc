import asyncio
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.resources import EVENTS, NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.lab.controllers.manager import run_controllers, run_scheduler
from purser.lab.kubelet.kubelet import Kubelet
from purser.lab.kubelet.node import NodeSettings


class World:
    """An API server with controllers, a default scheduler, and nodes with or without a kubelet."""

    def __init__(self, client, folder, group):
        self.client = client
        self.folder = folder
        self.group = group

    def start(self, work):
        return self.group.create_task(work)

    async def kubelet(self, name, **settings):
        kubelet = Kubelet(NodeSettings(name, **settings), self.folder / name, self.client)
        task = self.start(kubelet.run())
        await kubelet.started.wait()
        return kubelet, task

    async def node(self, name, labels=None, spec=None, **allocatable):
        """A node that is at once as it is to be: a scheduler may hear of a later change after the pods."""
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"} | allocatable
        status = {"allocatable": amounts, "capacity": amounts}
        await self.client.create(
            NODES, {"metadata": {"name": name, "labels": labels or {}}, "spec": spec or {}, "status": status}
        )

    async def pod(self, name, requests=None, **spec):
        container = {"name": "c", "image": "i", "resources": {"requests": requests or {}}}
        return await self.client.create(
            PODS.raw(), {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}, "default"
        )

    async def pods(self):
        return (await self.client.list(PODS.raw(), "default")).items

    async def until(self, probe, what=""):
        deadline = time.monotonic() + 60
        while not (found := await probe()):
            assert time.monotonic() < deadline, f"not within 60 s: {what or probe.__qualname__}"
            await asyncio.sleep(0.02)
        return found

    async def bound(self, name):
        async def probe():
            return (await self.client.get(PODS, name, "default")).spec.node_name

        return await self.until(probe)

    async def event(self, pod, reason):
        async def probe():
            for event in (await self.client.list(EVENTS, "default")).items:
                if event.involved_object.name == pod and event.reason == reason:
                    return event.message
            return None

        return await self.until(probe)


@asynccontextmanager
async def _cancelling():
    async with asyncio.TaskGroup() as group:
        yield group
        for task in list(group._tasks):
            task.cancel()


@pytest.fixture
async def world():
    with tempfile.TemporaryDirectory(prefix="pw-") as name:
        folder = Path(name)
        async with ApiServer(tls=False) as api:
            config = ClusterConfig.load(api.write_kubeconfig(folder / "kubeconfig"))
            async with Client(config) as client, _cancelling() as group:
                world = World(client, folder, group)
                world.start(run_controllers(client))
                world.start(run_scheduler(client, "default-scheduler"))
                yield world
