"""From creation to running, for a burst of share pods: Purser, and the same with a node lock as HAMi has it.

    python benchmarks/binding_burst.py --assets DIR [--nodes 100] [--pods 1000] [--policy spread] [--limit 3600]

A lab without emulated nodes: etcd, kube-apiserver and kube-scheduler of DIR, and Purser's webhook and scheduler.
The nodes are hollow: 8 GPUs of 80 GiB in an annotation, and a kubelet of a few lines that renews its lease, and has one
pod after the other admitted on each node, and running at once. There is no agent (a lab emulates 64 nodes with agents
at the most): what is measured is the way to the devices, not what happens inside Allocate.

    purser  nodes of Purser's agent: the Binding brings the grant, and Allocate asks nobody
    lock    nodes of HAMi's device plugin: before a Binding the node is locked by its annotation hami.io/mutex.lock,
            where it is locked for another pod the Binding fails and kube-scheduler tries again after its back-off (1 to
            10 s), and Allocate finds the pod by the lock, writes to it and unlocks the node. Purser's scheduler does
            for such nodes what HAMi's does; the plugin's requests are made here, in HAMi's order

Both in this process, one after the other in the same lab, and a small burst before that is not measured. Compare only
what one run prints. While pods are waited for, how many run is printed every 30 s to standard error.
"""

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec
import structlog

from purser.core.model import Device, Enforcement, NodeInventory, NodePolicy
from purser.core.names import INVENTORY_ANNOTATION, NODE_POLICY_ANNOTATION, SCHEDULER_NAME
from purser.core.node.amounts import listed_amounts
from purser.core.vendors.hami_nodes import PLUGIN_LOCK, REGISTER_ANNOTATION, RegisteredGpu
from purser.kube import Client, Informer, SystemClock
from purser.kube.objects import Node, Pod
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.controlplane.programs import Programs
from purser.lab.hollow.vendors import served
from purser.lab.kubelet.lease import keep_leases
from purser.lab.settings import LabSettings
from purser.scheduler.reasons import BindFailure

GPUS, MEMORY_MIB, SLOTS = 8, 81920, 10
AT_ONCE = 32
"""Requests that create pods."""
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "10"}
NAMESPACE = "default"


async def make_node(client: Client, name: str, kind: str) -> None:
    """A node that Purser's agent serves, or HAMi's device plugin."""
    ids = [f"GPU-{name}-{index}" for index in range(GPUS)]
    devices = tuple(
        Device(each, index, "NVIDIA H100", MEMORY_MIB, slots=SLOTS, enforcement=Enforcement.HAMI_CORE)
        for index, each in enumerate(ids)
    )
    inventory = NodeInventory(name, devices)
    registered = [
        RegisteredGpu(each, index=index, count=SLOTS, devmem=MEMORY_MIB, devcore=100, type="NVIDIA H100", health=True)
        for index, each in enumerate(ids)
    ]
    said: Mapping[str, object] = (
        {INVENTORY_ANNOTATION: inventory} if kind == "purser" else {REGISTER_ANNOTATION: registered}
    )
    annotations = {key: msgspec.json.encode(value).decode() for key, value in said.items()}
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(GPUS * SLOTS)}
    amounts |= {resource: str(amount) for resource, amount in listed_amounts(inventory, ()).items()}
    labels = {"kubernetes.io/hostname": name, "kind": kind}
    await client.create(NODES, {"metadata": {"name": name, "labels": labels, "annotations": annotations}})
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    await client.patch_merge(NODES, name, {"status": status}, subresource="status")


class Kubelets:
    """Of all nodes: pods that are bound are admitted one after the other on each, and run."""

    def __init__(self, client: Client, kind: str) -> None:
        self._client = client
        self._kind = kind
        self._gates: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._taken: dict[str, asyncio.Task[None]] = {}
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        """By name of a pod, when."""

    def see(self, pod: Pod) -> None:
        """Handler of an informer."""
        name = pod.metadata.name
        if not pod.spec.node_name or name not in self.created:
            return
        self.bound.setdefault(name, time.perf_counter())
        if pod.status.phase == "Running":
            self.running.setdefault(name, time.perf_counter())
        elif name not in self._taken:
            self._taken[name] = asyncio.create_task(self._admit(pod))

    async def _admit(self, pod: Pod) -> None:
        async with self._gates[pod.spec.node_name]:
            if self._kind == "lock":
                await self._allocate(pod.spec.node_name)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self._client.patch_merge(PODS, pod.metadata.name, {"status": status}, NAMESPACE, subresource="status")

    def check(self) -> None:
        """Raises what an admission failed with: its pod would be waited for without end."""
        for task in self._taken.values():
            if task.done():
                task.result()

    async def _allocate(self, node: str) -> None:
        """What HAMi's plugin asks and writes."""
        there: Node = await self._client.get(NODES, node)
        _, _, name = there.metadata.annotations[PLUGIN_LOCK.annotation].split(",")
        pod = await self._client.get(PODS, name, NAMESPACE)
        changes = served(pod.metadata.annotations)
        assert changes, f"pod {name} waits for no device"
        for key, text in sorted(changes.items(), reverse=True):  # the devices, then the phase
            await self._client.patch_merge(PODS, name, {"metadata": {"annotations": {key: text}}}, NAMESPACE)
        held = (await self._client.get(NODES, node)).metadata.annotations.get(PLUGIN_LOCK.annotation, "")
        assert held.endswith(f",{NAMESPACE},{name}"), "the node is locked for this pod"
        await self._client.patch_merge(NODES, node, {"metadata": {"annotations": {PLUGIN_LOCK.annotation: None}}})


async def locked_bindings(lab: Lab) -> float:
    """How many Bindings failed so far because the node was locked."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{lab.scheduler_metrics_port}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    wanted = [each for each in lines if each.startswith("purser_scheduler_bind_failures_total{")]
    return sum(float(each.rsplit(" ", 1)[1]) for each in wanted if f'"{BindFailure.NODE_LOCKED}"' in each)


async def wait(kubelets: Kubelets, pods: int, limit_s: float) -> None:
    """Return once so many pods run. Raises TimeoutError, which says how many do."""
    begun, told = time.perf_counter(), 0.0
    while len(kubelets.running) < pods:
        await asyncio.sleep(0.1)
        kubelets.check()
        passed_s = time.perf_counter() - begun
        if passed_s > told + 30:
            told = passed_s
            print(f"after {passed_s:.0f} s {len(kubelets.running)} of {pods} run", file=sys.stderr, flush=True)
        if passed_s > limit_s:
            raise TimeoutError(f"{len(kubelets.running)} of {pods} pods run after {passed_s:.0f} s")


async def burst(lab: Lab, kind: str, nodes: int, pods: int, policy: str, limit_s: float) -> dict[str, float]:
    """Seconds at p50 and p99, and how often a Binding failed. Nodes and pods are gone afterwards."""
    client, kubelets = lab.client, Kubelets(lab.client, kind)
    before = await locked_bindings(lab)
    names = [f"{kind}-{number}" for number in range(nodes)]
    await asyncio.gather(*(make_node(client, name, kind) for name in names))
    await asyncio.sleep(2)  # schedulers hear of the nodes
    informer: Informer[Pod] = Informer(client, PODS, NAMESPACE)
    informer.add_handler(kubelets.see, lambda _, pod: kubelets.see(pod))
    living = (informer.run(), keep_leases(client, SystemClock(), lambda: names))
    tasks = [asyncio.create_task(each) for each in living]
    gate = asyncio.Semaphore(AT_ONCE)

    async def create(name: str) -> None:
        container = {"name": "main", "image": "busybox", "resources": {"limits": LIMITS}}
        metadata = {"name": name, "namespace": NAMESPACE, "annotations": {NODE_POLICY_ANNOTATION: policy}}
        async with gate:
            kubelets.created[name] = time.perf_counter()
            await client.create(
                PODS, {"metadata": metadata, "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container]}}
            )

    begun = time.perf_counter()
    await asyncio.gather(*(create(f"{kind}-pod-{number}") for number in range(pods)))
    await wait(kubelets, pods, limit_s)
    seconds = [kubelets.running[name] - at for name, at in kubelets.created.items()]
    failed = await locked_bindings(lab) - before
    used = len({pod.spec.node_name for pod in informer.store.values()})
    for task in tasks:
        task.cancel()
    for name in kubelets.created:
        await client.delete(PODS, name, NAMESPACE, grace_period_seconds=0)
    for name in names:
        await client.delete(NODES, name)
    await asyncio.sleep(2)
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    all_s = max(kubelets.running.values()) - begun
    return {"p50": cuts[49], "p99": cuts[98], "all": all_s, "nodes": used, "locked": failed}


async def measure(assets: Path, nodes: int, pods: int, policy: str, limit_s: float) -> None:
    """One lab, both ways."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    async with Lab(LabSettings((), programs=Programs.find(assets))) as lab:
        await lab.ready()
        for kind in ("purser", "lock"):
            await burst(lab, kind, min(nodes, 4), min(pods, 8), policy, limit_s)
        print(f"{pods} pods, {nodes} nodes, policy {policy}")
        print("          p50 s   p99 s   all s   nodes used   Bindings that failed on a lock", flush=True)
        found = {}
        for kind in ("purser", "lock"):
            found[kind] = one = await burst(lab, kind, nodes, pods, policy, limit_s)
            times = f"{one['p50']:6.1f}  {one['p99']:6.1f}  {one['all']:6.1f}"
            print(f"{kind:8} {times}   {one['nodes']:10.0f}   {one['locked']:.0f}", flush=True)
        p50, p99 = (found["lock"][each] / found["purser"][each] for each in ("p50", "p99"))
        print(f"ratio    {p50:6.1f}  {p99:6.1f}")


def main() -> None:
    """Measure, and print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, required=True, help="folder with etcd, kube-apiserver, kube-scheduler")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--policy", default=NodePolicy.SPREAD.value, help="for nodes: spread has few pods meet on one")
    parser.add_argument("--limit", type=float, default=3600, metavar="S", help="after so many seconds it gives up")
    options = parser.parse_args()
    asyncio.run(measure(options.assets, options.nodes, options.pods, options.policy, options.limit))


if __name__ == "__main__":
    main()
