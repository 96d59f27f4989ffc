"""When kubelet takes back what pods held: devices whenever it needs to know, CPUs every ten seconds."""

import asyncio

from tests.unit.kube.servers import ManualClock
from tests.unit.lab.kubelet.rig import Node, Plugin, container, register, running, serving

from purser.lab.kubelet.node import NodeSettings
from purser.lab.kubelet.podworkers import PodWorkers
from purser.lab.kubelet.runtime import Runtime

STATIC = {"cpuManagerPolicy": "static"}


def workers_of(node, clock):
    settings = NodeSettings("n1", machine=node.books.node.machine)
    runtime = Runtime(node.folder / "pods")
    return PodWorkers(settings, None, node.books, node.endpoints, runtime, None, clock, lambda _reason: None)


async def test_devices_of_a_pod_that_is_over_are_free_at_the_next_list_its_cpus_ten_seconds_later(folder):
    clock = ManualClock()
    async with running(Node(folder, **STATIC)) as node, serving(node, Plugin()):
        await register(node)
        await node.until_capacity(3)
        await node.admit("gone", container("c", 1, cpu="2", memory="1Gi"))
        workers = workers_of(node, clock)
        assert list(workers.listed()) == []
        assert node.books.devices.held, "before kubelet knows all pods nothing is taken"
        workers.all_told()
        assert list(workers.listed()) == []
        assert not node.books.devices.held
        reconciling = asyncio.create_task(workers.keep_freeing_cpus())
        await asyncio.sleep(0)
        assert node.books.state.cpus.exclusive
        clock.advance(10)
        await asyncio.sleep(0)
        assert not node.books.state.cpus.exclusive
        assert node.books.state.cpus.default == node.books.node.machine.all_cpus
        reconciling.cancel()
