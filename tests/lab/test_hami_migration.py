"""Ten nodes go from HAMi's device plugin to Purser's agent and back, one by one, with pods running and arriving.

For the first five nodes HAMi's scheduler places all pods, also on nodes of agents; then Purser's places all, also on
nodes of HAMi's plugin; on the way back the other way round.
"""

import asyncio
from collections import defaultdict

import pytest
import pytest_asyncio

from purser.core.names import GPU_RESOURCE, SCHEDULER_NAME
from purser.core.vendors.hami_nodes import is_served_by_plugin, read_gpus
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.folders import node_folders
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.contract.client import until
from tests.lab.hami import LOCK, MEMORY_MIB, PHASE, REGISTER, SCHEDULER, HamiPlugin, HamiScheduler

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.gate]

COUNT = 10
SHARE = {GPU_RESOURCE: 1, "nvidia.com/gpumem": 4001}
WHOLE = {GPU_RESOURCE: 1, "nvidia.com/gpumem-percentage": 100, "nvidia.com/gpucores": 100}


class Cluster:
    """A lab of ten nodes, who serves each, and who places pods."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.client = lab, lab.client
        self.plugins = {
            name: HamiPlugin(node, node_folders(lab.folder, place).kubelet, lab.client)
            for place, (name, node) in enumerate(lab.nodes.items())
        }
        self.hamis = HamiScheduler(lab.client)
        self.hami_places = True
        self.made = 0

    async def pods(self):
        return (await self.client.list(PODS, "default")).items

    async def arrive(self, limits):
        """A pod comes, and runs. HAMi's webhook, or an author, names HAMi's scheduler; Purser's webhook its own."""
        self.made += 1
        named = {"schedulerName": SCHEDULER} if self.hami_places else {}
        main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
        body = {"metadata": {"name": f"pod-{self.made}"}, "spec": {**named, "containers": [main]}}
        pod = await self.client.create(PODS, body, "default")
        if self.hami_places:
            await self.hamis.place(pod)

        async def runs():
            found = await self.client.get(PODS, pod.metadata.name, "default")
            assert found.status.phase in ("Pending", "Running"), (found.status, found.metadata.annotations)
            return found if found.status.phase == "Running" else None

        return await until(f"{pod.metadata.name} runs", runs)

    async def leave(self, pod):
        await self.client.delete(PODS, pod.metadata.name, "default", grace_period_seconds=0)

    async def to_purser(self, name):
        await self._cordon(name, True)
        await self.plugins[name].stop()
        self.lab.start_agent(name)
        await self._served(name, lambda gpus: not is_served_by_plugin(gpus))
        await self._cordon(name, None)

    async def to_hami(self, name):
        await self._cordon(name, True)
        await self.lab.nodes[name].agent.stop()
        await self.plugins[name].start()
        await self._served(name, is_served_by_plugin)
        await self._cordon(name, None)

    async def _cordon(self, name, value):
        await self.client.patch_merge(NODES, name, {"spec": {"unschedulable": value}})

    async def _served(self, name, by):
        async def probe():
            node = await self.client.get(NODES, name)
            gpus = read_gpus(node.metadata.annotations.get(REGISTER, "[]"))
            listed = int(node.status.allocatable.get(GPU_RESOURCE, 0))
            return bool(gpus) and by(gpus) and listed > 0 and "nvidia.com/gpumem" in node.status.allocatable

        await until(f"{name} is served", probe)

    async def check(self):
        """Nothing was refused, and no GPU has more containers on it than it has room for, as they were started. Who
        placed, and who served, the pods that are there; and which schedulers' pods share a GPU."""
        assert not any(plugin.failures for plugin in self.plugins.values())
        assert not any(node.rejections for node in self.lab.nodes.values())
        held, ways, sharing = defaultdict(list), set(), defaultdict(set)
        for pod in await self.pods():
            assert pod.status.phase == "Running", (pod.metadata.name, pod.status.phase)
            env = self.lab.nodes[pod.spec.node_name].container(pod.metadata.uid, "main").env
            for place, uuid in enumerate(env["NVIDIA_VISIBLE_DEVICES"].split(",")):
                limit = env.get(f"CUDA_DEVICE_MEMORY_LIMIT_{place}", f"{MEMORY_MIB}m")
                held[uuid].append(int(limit.removesuffix("m")))
                sharing[uuid].add(pod.spec.scheduler_name)
            ways.add((pod.spec.scheduler_name, "PURSER_GPU_ENFORCEMENT" in env))
        assert {uuid: mib for uuid, mib in held.items() if sum(mib) > MEMORY_MIB} == {}
        return ways | {tuple(sorted(each)) for each in sharing.values()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster():
    settings = LabSettings(node_choices([f"t4-4:{COUNT}"]), probe_interval_s=0.5)
    async with Lab(settings) as lab:
        async with waiting.limit():
            await lab.ready()
        cluster = Cluster(lab)
        await asyncio.gather(*map(cluster.to_hami, lab.nodes))
        yield cluster
        for plugin in cluster.plugins.values():
            await plugin.stop()


async def test_none_is_refused_and_none_is_given_twice_on_the_way_there_and_back(cluster):
    names, ways = list(cluster.lab.nodes), set()
    running = [await cluster.arrive(limits) for limits in [SHARE] * 11 + [WHOLE] * 4]
    there = [(cluster.to_purser, (name,)) for name in names]
    back = [(cluster.to_hami, pair) for pair in zip(names[::2], names[1::2], strict=True)]
    for at, (move, moved) in enumerate(there + back):
        if at in (len(there) // 2, len(there) + len(back) // 2):
            cluster.hami_places = not cluster.hami_places
        arriving = [cluster.arrive(WHOLE if at % 3 == 0 else SHARE), *(cluster.arrive(SHARE) for _ in moved)]
        came = await asyncio.gather(*arriving, *map(move, moved))
        running += came[: len(arriving)]
        ways |= await cluster.check()
        for pod in running[: len(arriving)]:
            await cluster.leave(pod)
        del running[: len(arriving)]
    both = (SCHEDULER, SCHEDULER_NAME)
    assert ways >= {both, *((scheduler, by_agent) for scheduler in both for by_agent in (True, False))}
    for name in names:
        assert LOCK not in (await cluster.client.get(NODES, name)).metadata.annotations
    assert {pod.metadata.annotations.get(PHASE, "success") for pod in await cluster.pods()} == {"success"}
