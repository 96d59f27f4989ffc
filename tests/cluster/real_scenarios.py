"""The scenarios' `Cluster` on a real Kubernetes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any

import grpc

from purser.agent.kubelet.pod_resources import CHANNEL_OPTIONS
from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.core.names import GPU_RESOURCE
from purser.kube import Client, ClusterConfig
from tests.cluster.kubelet_twin.kubelets import CHECKPOINT
from tests.cluster.kubernetes import BUSYBOX_IMAGE
from tests.cluster.purser_processes import Purser
from tests.scenarios.actions import eventually, leave
from tests.scenarios.hollow import hollow_nodes

_numbers = count(1)


@asynccontextmanager
async def scenario_cluster(purser: Purser) -> AsyncIterator["RealScenarioCluster"]:
    """A namespace for one scenario, which is empty and on its way out afterwards where the scenario went well."""
    async with Client(ClusterConfig.load(purser.cluster.kubeconfig)) as client:
        cluster = RealScenarioCluster(purser, client, f"scenario-{next(_numbers)}")
        await cluster.set_up()
        yield cluster
        await cluster.tear_down()


class RealScenarioCluster:
    """One namespace on the real cluster for one scenario."""

    image = BUSYBOX_IMAGE
    pod_fields: Mapping[str, Any] = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }

    def __init__(self, purser: Purser, client: Client, namespace: str) -> None:
        self._purser = purser
        self._real = purser.cluster
        self.client = client
        self.namespace = namespace
        self.gpu_node = self._real.node_name
        self.uuids = purser.driver.uuids

    async def container_env(self, pod: str, container: str) -> dict[str, str]:
        return await asyncio.to_thread(self._real.container_env, self.namespace, pod, container)

    async def pod_resources(self, node: str) -> dict[tuple[str, str, str], tuple[str, ...]]:
        socket = f"unix://{self._real.pod_resources_socket}"
        async with grpc.aio.insecure_channel(socket, options=CHANNEL_OPTIONS) as channel:
            lister = api_pb2_grpc.PodResourcesListerStub(channel)
            reply = await lister.List(api_pb2.ListPodResourcesRequest(), wait_for_ready=True, timeout=60)
        return {
            (pod.namespace, pod.name, container.name): tuple(
                sorted(
                    each
                    for devices in container.devices
                    if devices.resource_name == GPU_RESOURCE
                    for each in devices.device_ids
                )
            )
            for pod in reply.pod_resources
            for container in pod.containers
        }

    async def lose_gpu(self, node: str, index: int) -> None:
        self._purser.driver.lose_gpu(index)

    async def recover_gpu(self, node: str, index: int) -> None:
        self._purser.driver.recover_gpu(index)

    async def restart_kubelet(self, node: str) -> None:
        await asyncio.to_thread(self._real.restart_kubelet)

    async def kill_agent(self, node: str) -> None:
        await asyncio.to_thread(self._purser.agent.kill)

    async def start_agent(self, node: str) -> None:
        await asyncio.to_thread(self._purser.agent.start)

    async def kill_scheduler(self) -> None:
        await asyncio.to_thread(self._purser.scheduler.kill)

    async def start_scheduler(self) -> None:
        await asyncio.to_thread(self._purser.scheduler.start)
        await asyncio.to_thread(self._purser.wait_scheduler)

    async def stop_webhook(self) -> None:
        await self.kill_scheduler()

    async def start_webhook(self) -> None:
        await self.start_scheduler()

    async def wait_for_empty_checkpoint(self) -> None:
        """Until kubelet's checkpoint has no devices of pods: after a restart those that it has are taken."""

        async def empty() -> bool:
            checkpoint = json.loads((self._real.kubelet_folder / CHECKPOINT).read_text())
            return not checkpoint["Data"]["PodDeviceEntries"]

        await eventually(self, "kubelet's checkpoint has no devices of pods", empty)

    def hollow_nodes(self, count: int) -> AbstractAsyncContextManager[tuple[str, ...]]:
        return hollow_nodes(self.client, count)

    async def set_up(self) -> None:
        await asyncio.to_thread(self._real.create_namespace, self.namespace)

    async def tear_down(self) -> None:
        """The next scenario finds every slot free again: kubelet knows no pod of this one any more."""
        await leave(self)

        async def empty() -> bool:
            listed = await self.pod_resources(self.gpu_node)
            return not any(namespace == self.namespace for namespace, _, _ in listed)

        await eventually(self, "kubelet has forgotten the namespace's pods", empty)
