"""What it costs an agent to measure its node's GPUs, and to tell Prometheus: against the budget of 20 ms a scrape.

    python benchmarks/agent_metrics.py [--profile h100-8] [--pods 50] [--repeats 50]

The real agent's parts over the simulated driver's C library: every pod shares a GPU with others and runs a process on
it, and its cgroup is read from a folder that stands for /proc. A measurement is what happens every ten seconds, with
the audit. All times are CPU; a measurement's include the simulated driver's. Memory is that of this process, with what
it simulates and without an agent's connections.
"""

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.exposition import generate_latest

from purser.agent.allocation.book import Book, BookedContainer, BookedPod
from purser.agent.allocation.pod_statuses import ContainerIdentity, NodePod, NodePodStatus
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.agent.metrics import AgentMetrics
from purser.agent.monitoring import Auditor, GpuMonitoring, NodeSnapshot, NodeStateCollector
from purser.agent.settings import AgentSettings, MetricNames
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Enforcement, Grant
from purser.kube.failures import ObjectFailures
from purser.kube.objects import ObjectMeta
from purser.lab.driver import SimulatedDriver
from purser.lab.kubelet.runtime import ContainerRecord, Runtime
from purser.lab.processes import GpuProcesses, ProcessLoad

BUDGET_MS = 20.0


class Pods(dict[str, NodePod]):
    def by_uid(self, uid: str) -> NodePod | None:
        return next((pod for pod in self.values() if pod.metadata.uid == uid), None)


class BusyNode:
    """A node whose GPUs are shared by so many pods, each with a process."""

    def __init__(self, folder: Path, profile: str, pods: int) -> None:
        self.driver = SimulatedDriver.create(folder / "driver", "node-1", profile)
        processes = GpuProcesses(self.driver, Runtime(folder / "runtime"), folder / "host")
        self.pods, self.booked, self.listing = Pods(), [], []
        for number in range(pods):
            uuid = self.driver.uuids[number % len(self.driver.uuids)]
            uid, name = f"00000000-0000-4000-8000-{number:012}", f"training-job-with-a-long-name-{number}"
            record = ContainerRecord(uid, "research-team", name, "main", {}, 1.0)
            load = ProcessLoad(memory_mib=400, sm_percent=7)
            processes.start(uuid, load, container=record)
            status = NodePodStatus(phase="Running", container_statuses=(ContainerIdentity("main", f"x://{record.id}"),))
            meta = ObjectMeta(name=name, namespace="research-team", uid=uid)
            self.pods[f"research-team/{name}"] = NodePod(metadata=meta, status=status)
            part = ContainerGrant("main", ContainerKind.APP, (DeviceShare(uuid, 4500, 10),), Enforcement.NONE)
            grant = Grant(uid, "research-team", name, "node-1", (part,))
            ids = (f"{uuid}::{number}",)
            self.booked.append(BookedPod(grant, {"main": BookedContainer(ids, Enforcement.NONE)}))
            devices = [api_pb2.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=ids)]
            containers = [api_pb2.ContainerResources(name="main", devices=devices)]
            self.listing.append(api_pb2.PodResources(namespace="research-team", name=name, containers=containers))
        self.host = folder / "host"

    def node_pods(self) -> Any:
        grants = {pod.grant.key: pod.grant for pod in self.booked}
        informer = SimpleNamespace(store=self.pods, health=SimpleNamespace(synced=True))
        return SimpleNamespace(pods=informer, view=lambda: SimpleNamespace(grants=grants))

    async def resources(self) -> list[api_pb2.PodResources]:
        return self.listing


async def measure(node: BusyNode, repeats: int) -> None:
    settings = AgentSettings(node_name="node-1", host_root=node.host, metrics_also_as=tuple(MetricNames))
    monitor = DeviceMonitor(settings, node.driver.open())
    await monitor.scan()
    book = Book(node.host / "book", "node-1", node.booked)
    recorder = SimpleNamespace(event=lambda *_, **__: None)
    auditor = Auditor(cast(Any, recorder), "node-1", node.node_pods(), monitor.identified, None)
    watching = GpuMonitoring(settings, monitor, node.node_pods(), book, cast(Any, node), auditor, ObjectFailures())
    asking = asyncio.create_task(watching.run())
    await asyncio.sleep(1)
    asking.cancel()
    metrics = AgentMetrics()
    metrics.registry.register(
        NodeStateCollector(
            lambda: NodeSnapshot(
                inventory=monitor.inventory.value,
                readings={},
                usage=dict(book.usage),
                pods=tuple(book.pods.values()),
                violations=0,
                registered=True,
                streams=1,
                measured=watching.measured,
            )
        )
    )
    own = milliseconds(lambda: generate_latest(metrics.registry), repeats)
    others = milliseconds(watching.compatible, repeats)
    rounds = []
    for _ in range(repeats):
        before = time.process_time()
        await watching.measure()
        rounds.append((time.process_time() - before) * 1000)
    text = generate_latest(metrics.registry).decode() + watching.compatible()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(node.driver.uuids)} GPUs, {len(node.pods)} pods: {len(lines)} samples, {len(text) / 1024:.0f} KiB")
    print(f"a scrape, Purser's names             {summary(own)}")
    print(f"a scrape, DCGM's and HAMi's beside   {summary(others)}")
    print(f"both, at the median: {statistics.median(own) + statistics.median(others):.1f} of {BUDGET_MS:.0f} ms")
    print(f"a measurement of all GPUs           {summary(rounds)}")
    print(f"memory of this process: {memory:.0f} MiB")


def milliseconds(what: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        before = time.process_time()
        what()
        times.append((time.process_time() - before) * 1000)
    return times


def summary(times: list[float]) -> str:
    return f"median {statistics.median(times):5.1f} ms, worst {max(times):5.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="h100-8")
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(BusyNode(Path(folder), given.profile, given.pods), given.repeats))


if __name__ == "__main__":
    main()
