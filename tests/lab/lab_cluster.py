"""The scenarios' `Cluster` on the embedded lab."""

import re
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import aiohttp

from purser.core.names import GPU_RESOURCE
from purser.kube.resources import NAMESPACES, PODS
from purser.lab.cluster import Lab
from purser.lab.kubelet.configuration import KubeletSection
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.scenarios.actions import eventually, leave
from tests.scenarios.hollow import hollow_nodes
from tests.tiers import IS_LONG

_VIOLATIONS = re.compile(r"purser_\w+_invariant_violations_total\{")


class LabCluster:
    image = "busybox"
    pod_fields: Mapping[str, Any] = {}

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._lab = lab
        self.client = lab.client
        self.namespace = namespace
        self.gpu_node = next(iter(lab.nodes))
        self.uuids = lab.nodes[self.gpu_node].driver.uuids

    async def container_env(self, pod, container):
        found = await self.client.get(PODS, pod, self.namespace)
        record = self._lab.nodes[found.spec.node_name].container(found.metadata.uid, container)
        assert record is not None, f"{pod}/{container} was not started"
        return record.env

    async def pod_resources(self, node):
        listed = await self._lab.nodes[node].pod_resources()
        return {key: devices.get(GPU_RESOURCE, ()) for key, devices in listed.items()}

    async def lose_gpu(self, node, index):
        self._lab.lose_gpu(node, index)

    async def recover_gpu(self, node, index):
        self._lab.recover_gpu(node, index)

    async def restart_kubelet(self, node):
        await self._lab.restart_kubelet(node)

    async def kill_agent(self, node):
        await self._lab.kill_agent(node)

    async def start_agent(self, node):
        self._lab.start_agent(node)

    async def kill_scheduler(self):
        await self._lab.kill_scheduler()

    async def start_scheduler(self):
        await self._lab.start_scheduler()

    async def stop_webhook(self):
        await self.kill_scheduler()

    async def start_webhook(self):
        await self.start_scheduler()

    def hollow_nodes(self, count):
        return hollow_nodes(self.client, count)

    async def set_up(self):
        await self.client.create(NAMESPACES, {"metadata": {"name": self.namespace}})

    async def tear_down(self):
        """The next scenario finds every slot free again: no kubelet knows a pod of this one any more."""
        await leave(self)

        async def empty():
            listed = [await node.pod_resources() for node in self._lab.nodes.values()]
            return not any(namespace == self.namespace for of_node in listed for namespace, _, _ in of_node)

        await eventually(self, "the namespace's pods are gone", empty)
        await check_invariants(self._lab)


async def check_invariants(lab: Lab) -> None:
    """No scheduler and no agent has found its own records wrong since it started; one that does not run has none."""
    ports = [lab.scheduler_metrics_port, *(node.metrics_port for node in lab.nodes.values())]
    async with aiohttp.ClientSession() as session:
        for port in ports:
            with suppress(aiohttp.ClientConnectionError):
                async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                    counted = [line for line in (await response.text()).splitlines() if _VIOLATIONS.match(line)]
                    assert len(counted) >= 5
                    assert all(line.endswith(" 0.0") for line in counted), counted


_numbers = count(1)


@asynccontextmanager
async def ready_lab(kubelet_version):
    """A lab with the scenarios' node."""
    kubelet = KubeletSection(version=kubelet_version)
    probe_s = 0.1 if IS_LONG else 1.0  # cards die in the gate alone
    async with Lab(LabSettings(node_choices(["a100-40gb-8"]), kubelet=kubelet, probe_interval_s=probe_s)) as lab:
        async with waiting.limit():
            await lab.ready()
        yield lab


@asynccontextmanager
async def scenario_cluster(lab):
    """A namespace of its own. At the end every slot is free again: a module's scenarios can share a lab."""
    cluster = LabCluster(lab, f"scenario-{next(_numbers)}")
    await cluster.set_up()
    yield cluster
    await cluster.tear_down()
