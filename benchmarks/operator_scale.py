"""What it costs the operator when many nodes join: time of a round, writes per node, memory, and what it does at rest.

    python benchmarks/operator_scale.py [--nodes 1000] [--within 60]

The operator is a process of its own, as its command runs it. API server, controllers and kubelets of the hollow nodes
are this process, and on a small machine they are what takes the time: "complete after" says more about them than about
the operator. Pods are bound without a scheduler.
"""

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from purser.core.names import DEFAULT_NAMESPACE
from purser.kube import Client, ClusterConfig
from purser.kube.resources import NAMESPACES, NODES
from purser.lab.apiserver import ApiServer
from purser.lab.controllers.manager import run_controllers
from purser.lab.hollow import HollowFleet, HollowNodes, manifests
from purser.operator.chart_hooks import apply_definition
from purser.operator.policy import CLUSTER_POLICIES

POLICIES = CLUSTER_POLICIES.raw()
POLICY = {
    "metadata": {"name": "gpus"},
    "spec": {"gfd": {"enabled": False}, "dcgmExporter": {"enabled": False}, "migManager": {"enabled": False}},
}
"""Driver, toolkit, device plugin and validation: four pods a node."""
REST_S = 10.0
BUCKET = re.compile(r'^purser_operator_round_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--within", type=float, default=60.0, help="seconds within which they join")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), arguments.nodes, arguments.within))


async def measure(folder: Path, count: int, within_s: float) -> None:
    writes: Counter[tuple[str, str]] = Counter()

    async def note(request: web.Request) -> web.StreamResponse | None:
        is_write = request.method not in ("GET", "HEAD") and "/leases" not in request.path
        if is_write and request.headers.get("User-Agent") == "purser-operator":
            writes[request.method, request.path] += 1
        return None

    async with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(folder / "kubeconfig")
        server.intercept(note)
        async with Client(ClusterConfig.load(kubeconfig)) as client, asyncio.TaskGroup() as group:
            await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
            await apply_definition(client)
            await client.create(POLICIES, POLICY)
            fleet = HollowFleet(client, binds_daemon_pods=True)
            tasks = [group.create_task(run_controllers(client)), group.create_task(fleet.run())]
            with operator(kubeconfig) as (process, port):
                started = time.monotonic()
                await join(client, count, within_s)
                joined = time.monotonic() - started
                await complete(client, count)
                took = time.monotonic() - started
                report(count, joined, took, writes, process, port)
                await at_rest(writes, process)
            for task in tasks:
                task.cancel()


@contextmanager
def operator(kubeconfig: Path) -> Iterator[tuple[int, int]]:
    """The process and the port of its metrics."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["operator", "run", "--kubeconfig", kubeconfig, "--metrics-address", "127.0.0.1", "--metrics-port", port]
    command = [sys.executable, "-c", "from purser.cli import main; main()", *map(str, words), "--log-level", "error"]
    process = subprocess.Popen(command)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


async def join(client: Client, count: int, within_s: float) -> None:
    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number, node in enumerate(manifests(HollowNodes(name="gpu", count=count))):
            group.create_task(client.create(NODES, node))
            await asyncio.sleep(max(0.0, started + within_s * number / count - time.monotonic()))


async def complete(client: Client, count: int) -> None:
    while True:
        found = (await client.get(POLICIES, "gpus")).get("status") or {}
        if found.get("state") == "ready" and found["nodes"]["ready"] == count:
            return
        await asyncio.sleep(0.5)


def report(count: int, joined: float, took: float, writes: Counter[tuple[str, str]], process: int, port: int) -> None:
    of_nodes = Counter({path: number for (_, path), number in writes.items() if "/nodes/" in path})
    events = sum(number for (_, path), number in writes.items() if "/events" in path)
    others = writes.total() - of_nodes.total() - events
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    rounds = number_of(text, "purser_operator_round_seconds_count")
    print(f"{count} nodes joined in {joined:.0f} s, all complete after {took:.0f} s")
    print(f"writes per node: {of_nodes.total() / count:.1f} on average, {max(of_nodes.values())} at most")
    print(f"other writes: {others} ({events} events besides)")
    print(f"rounds: {rounds:.0f}, {number_of(text, 'purser_operator_round_seconds_sum') / rounds:.2f} s on average,")
    print(f"  writes included; half of them within {quantile(text, 0.5)} s, 99 % within {quantile(text, 0.99)} s")
    print(f"memory of the operator: {memory_mib(process, 'VmRSS'):.0f} MiB, {memory_mib(process, 'VmHWM'):.0f} at most")


async def at_rest(writes: Counter[tuple[str, str]], process: int) -> None:
    writes.clear()
    before = cpu_s(process)
    await asyncio.sleep(REST_S)
    print(f"at rest, {REST_S:.0f} s: {writes.total()} writes, {(cpu_s(process) - before) / REST_S:.1%} of a core")


def number_of(text: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def quantile(text: str, part: float) -> str:
    """The upper edge of the bucket in which it lies."""
    buckets = [(edge, float(count)) for edge, count in BUCKET.findall(text)]
    return next((edge for edge, count in buckets if count >= part * buckets[-1][1]), "?")


def memory_mib(process: int, field: str) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]


def cpu_s(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
