"""How long kube-scheduler waits for filter + prioritize, on a fleet of 5 000 nodes with 8 GPUs each.

    python benchmarks/extender_scale.py [--nodes 5000] [--pods 200]

Two fleets: all nodes in equal state, and all in different states. Pods are of seven sizes in turn, the mix is learnt
from them, and between two pods one node's usage changes, as after a Binding. "cold" is the slowest of the first pods of
each size, the other numbers are of the pods that follow. Three cuts: the kernel alone; over HTTPS on loopback, from a
client in another process; and the floor of the latter: the same server with an extender that answers at once, which is
what JSON and TLS cost whatever decides. PURSER_KERNELS=numpy measures without numba.
"""

import argparse
import asyncio
import gc
import http.client
import json
import multiprocessing
import os
import ssl
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from purser.adapters.pods import pod_spec
from purser.core.dialects import parse
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import Evaluator, PolicySettings, kernels, rank
from purser.core.placement.warmup import warm_up
from purser.kube import Client, ClusterConfig, EventRecorder
from purser.scheduler.cache import ClusterCache
from purser.scheduler.cache.arrivals import Arrivals
from purser.scheduler.certificates_keeper import CertificateKeeper, MemoryStore
from purser.scheduler.extender import KubeExtender
from purser.scheduler.extender_api import ExtenderArgs, ExtenderFilterResult, HostPriority
from purser.scheduler.extender_wire import decode_args
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.server import extender_app
from purser.telemetry import listening

GPUS, MEMORY_MIB, SLOTS = 8, 81920, 10


class NoKeys:
    signing, public = None, ()

    async def refresh(self) -> None: ...


def fill(cache: ClusterCache, nodes: int, *, different: bool) -> list[str]:
    names = [f"node-{n:05}" for n in range(nodes)]
    for number, name in enumerate(names):
        devices = tuple(
            Device(f"GPU-{number}-{i}", i, "NVIDIA H100 80GB HBM3", MEMORY_MIB, slots=SLOTS, numa_nodes=(i // 4,))
            for i in range(GPUS)
        )
        cache.fleet.set_inventory(NodeInventory(name, devices))
        if different:
            take(cache, name, number, number % GPUS, 1 + number % 7919)
    return names


def take(cache: ClusterCache, node: str, number: int, gpu: int, memory: int) -> None:
    uid = f"pod-on-{node}"
    cache.ledger.release(uid)
    share = DeviceShare(f"GPU-{number}-{gpu}", memory, 10)
    cache.ledger.reserve(Grant(uid, "default", uid, node, (ContainerGrant("c", ContainerKind.APP, (share,)),)))


def churn(cache: ClusterCache, names: list[str]) -> Iterator[None]:
    """One node changes at each step, never back to a state that was."""
    step = 0
    while True:
        number = step * 7 % len(names)
        take(cache, names[number], number, step % GPUS, 20000 + step)
        step += 1
        yield


HISTORY = 2000
"""Pods that have come before."""

SIZES = ((1, 4096, 10), (1, 8192, 0), (1, 16384, 30), (1, 40960, 50), (1, 81920, 100), (2, 81920, 100), (4, 81920, 100))
"""Of the pods in turn: GPUs, MiB and percent of compute of each."""


def body(names: list[str], number: int) -> bytes:
    """What kube-scheduler sends for the pod of that number."""
    cards, memory, cores = SIZES[number % len(SIZES)]
    limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": str(memory), "nvidia.com/gpucores": str(cores)}
    pod = {
        "metadata": {"name": f"p{number}", "namespace": "default", "uid": f"u{number}"},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "4", **limits}}}],
        },
    }
    return json.dumps({"Pod": pod, "NodeNames": names}).encode()


def with_history(cache: ClusterCache) -> Arrivals:
    """As after some thousand pods: a mix that has just begun is another one after every few pods."""
    for number in range(HISTORY):
        cache.arrivals.put_pod(decode_args(body([], -1 - number)).pod)
    return cache.arrivals


def kernel(cache: ClusterCache, names: list[str], pods: int) -> list[float]:
    arrivals = with_history(cache)
    evaluator, changes, times = Evaluator(cache.fleet, mix=arrivals.mix), churn(cache, names), []
    evaluator.refresh()
    for number in range(pods + len(SIZES)):
        pod = decode_args(body(names[:1], number)).pod
        arrivals.put_pod(pod)
        request = parse(pod_spec(pod))
        assert request is not None
        started = time.perf_counter()
        rank(evaluator.evaluate(request, names))
        times.append(time.perf_counter() - started)
        next(changes)
    return times


class AtOnce:
    """Answers without deciding."""

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        return ExtenderFilterResult(args.node_names)

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        return [HostPriority(name, 5) for name in args.node_names or ()]

    bind = preempt = None


class Churning:
    """Has a node change after each pod."""

    def __init__(self, extender: KubeExtender, changes: Iterator[None]) -> None:
        self.filter, self._extender, self._changes = extender.filter, extender, changes

    async def prioritize(self, args: ExtenderArgs) -> list[HostPriority]:
        answer = await self._extender.prioritize(args)
        asyncio.get_running_loop().call_soon(next, self._changes)
        return answer

    bind = preempt = None


def ask(port: int, ca_file: str, names: list[str], pods: int, results: Connection) -> None:
    """The client's process: one connection, as kube-scheduler keeps it."""
    connection = http.client.HTTPSConnection(
        "127.0.0.1", port, context=ssl.create_default_context(cafile=ca_file), timeout=60
    )
    times = []
    for number in range(pods + len(SIZES)):
        data = body(names, number)
        started = time.perf_counter()
        for verb in ("filter", "prioritize"):
            connection.request("POST", f"/{verb}", data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer
        times.append(time.perf_counter() - started)
    results.send(times)


async def over_https(extender: Any, names: list[str], pods: int) -> list[float]:
    keeper = CertificateKeeper(MemoryStore(), ["127.0.0.1"])
    await keeper.refresh()
    app = extender_app(extender, SchedulerMetrics())
    ours, theirs = multiprocessing.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        ca_file = Path(folder) / "ca.pem"
        ca_file.write_bytes(keeper.ca_bundle)
        async with listening(app, "127.0.0.1", 0, keeper.new_context()) as port:
            client = multiprocessing.get_context("spawn").Process(
                target=ask, args=(port, str(ca_file), names, pods, theirs)
            )
            client.start()
            times: list[float] = await asyncio.to_thread(ours.recv)
            client.join()
    return times


def report(what: str, times: list[float]) -> None:
    milliseconds = [seconds * 1000 for seconds in times]
    cold, warm = max(milliseconds[: len(SIZES)]), milliseconds[len(SIZES) :]
    percentiles = statistics.quantiles(warm, n=100, method="inclusive")
    print(f"{what:<44} cold {cold:8.2f} ms   p50 {percentiles[49]:6.2f} ms   p99 {percentiles[98]:6.2f} ms", flush=True)


async def run(nodes: int, pods: int) -> None:
    warm_up()
    async with Client(ClusterConfig.insecure("http://127.0.0.1:1")) as client:
        for title, different in (("equal states", False), ("different states", True)):
            cache = ClusterCache(NoKeys())  # type: ignore[arg-type]
            names = fill(cache, nodes, different=different)
            report(f"{title}: kernel", kernel(cache, names, pods))
            cache = ClusterCache(NoKeys())  # type: ignore[arg-type]
            names = fill(cache, nodes, different=different)
            with_history(cache)
            extender = KubeExtender(
                client,
                cache,
                NoKeys(),  # type: ignore[arg-type]
                PolicySettings(),
                SchedulerMetrics(),
                EventRecorder(client, "bench", "bench"),
            )
            extender.refresh()
            gc.freeze()  # as the process does once it is ready
            times = await over_https(Churning(extender, churn(cache, names)), names, pods)
            report(f"{title}: filter + prioritize, HTTPS", times)
        report("no decision: filter + prioritize, HTTPS", await over_https(AtOnce(), names, pods))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=200)
    options = arguments.parse_args()
    kernels.use(os.environ.get(kernels.VARIABLE, ""))
    print(f"{options.nodes} nodes x {GPUS} GPUs, {options.pods} pods", flush=True)
    asyncio.run(run(options.nodes, options.pods))
