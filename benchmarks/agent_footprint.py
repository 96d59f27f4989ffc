"""What one agent takes: memory, CPU at rest, a scrape, and the time until kubelet knows it.

    python benchmarks/agent_footprint.py [--profile h100-8] [--pods 50] [--rest 60] [--scrapes 100]

The agent is a process of its own, as its command runs it. API server, kubelet and scheduler are the lab's, in this
process: every pod shares a GPU of the simulated driver's C library, and runs a process on it. The agent is told to tell
its metrics by the names of all other exporters, too. CPU is the agent's own, by the kernel's count of it. As in the
image, its modules are compiled beforehand, and the machine's store of CA certificates is out of its sight.
"""

import argparse
import asyncio
import compileall
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import purser
from purser.agent.settings import MetricNames
from purser.cli.serving import LogLevel, configure_logs
from purser.core.names import GPU_RESOURCE
from purser.kube.resources import NAMESPACES, PODS
from purser.lab.cluster import Lab
from purser.lab.folders import NodeFolders, node_folders
from purser.lab.nodes import EmulatedNode
from purser.lab.ports import free_ports
from purser.lab.processes import ProcessLoad
from purser.lab.settings import LabSettings, node_choices

NAMESPACE = "research-team"
BUDGET_MIB, BUDGET_CORE, BUDGET_SCRAPE_MS = 80, 0.005, 20
SETTLED_S = 25.0
"""What a start costs is over then, and every GPU has been measured."""


async def measure(folder: Path, profile: str, pods: int, rest_s: float, scrapes: int) -> None:
    settings = LabSettings(nodes=node_choices([profile]), folder=folder)
    async with Lab(settings) as lab:
        await lab.ready()
        [node] = lab.nodes.values()
        await lab.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for number in range(pods):
            await lab.client.create(PODS, pod(number), NAMESPACE)
        await running(lab, pods)
        await occupy(lab, node)
        await node.agent.stop()
        [port] = free_ports(1)
        folders = node_folders(folder, 0)
        started = time.monotonic()
        with agent(node, folders, lab.kubeconfig, port) as process:
            ready_s, ready_cpu = await registered(port, started, process), cpu_s(process)
            print(f"{len(node.driver.uuids)} GPUs, {pods} pods with processes")
            print(f"start to registered with kubelet: {ready_s:.2f} s, {ready_cpu:.2f} s of CPU")
            await asyncio.sleep(SETTLED_S)
            before = cpu_s(process)
            await asyncio.sleep(rest_s)
            at_rest = (cpu_s(process) - before) / rest_s
            print(f"at rest, {rest_s:.0f} s: {at_rest:.2%} of a core of {BUDGET_CORE:.1%}")
            before, began = cpu_s(process), time.monotonic()
            for _ in range(scrapes):
                text = await asyncio.to_thread(metrics, port)
            took = (time.monotonic() - began) * 1000 / scrapes
            scrape = (cpu_s(process) - before) * 1000 / scrapes
            samples = sum(not line.startswith("#") for line in text.splitlines())
            print(f"a scrape: {scrape:.1f} ms of CPU of {BUDGET_SCRAPE_MS} ms, {took:.1f} ms until it is there")
            print(f"  {samples} samples, {len(text) / 1024:.0f} KiB")
            now, most = memory_mib(process, "VmRSS"), memory_mib(process, "VmHWM")
            mapped = memory_mib(process, "RssFile")
            print(f"memory: {now:.1f} MiB of {BUDGET_MIB}, {mapped:.0f} of them mapped from files; {most:.1f} at most")


def pod(number: int) -> dict[str, Any]:
    limits = {GPU_RESOURCE: "1", "nvidia.com/gpumem": "4500", "nvidia.com/gpucores": "10"}
    container = {"name": "main", "image": "training", "resources": {"limits": limits}}
    return {"metadata": {"name": f"training-job-with-a-long-name-{number}"}, "spec": {"containers": [container]}}


async def running(lab: Lab, count: int) -> None:
    while True:
        found = (await lab.client.list(PODS.raw(), NAMESPACE)).items
        if sum(each.get("status", {}).get("phase") == "Running" for each in found) == count:
            return
        await asyncio.sleep(0.5)


async def occupy(lab: Lab, node: EmulatedNode) -> None:
    """A process in each container, on the GPU that it was granted."""
    for each in (await lab.client.list(PODS.raw(), NAMESPACE)).items:
        granted = msgspec.json.decode(each["metadata"]["annotations"]["purser.dev/grant"])
        uuid = granted["containers"][0]["shares"][0]["uuid"]
        container = node.processes.container(NAMESPACE, each["metadata"]["name"])
        node.processes.start(uuid, ProcessLoad(memory_mib=400, sm_percent=7), container=container)


@contextmanager
def agent(node: EmulatedNode, folders: NodeFolders, kubeconfig: Path, port: int) -> Iterator[int]:
    """The process."""
    options = {
        "node-name": node.name,
        "kubeconfig": kubeconfig,
        "device-plugin-dir": folders.kubelet / "device-plugins",
        "pod-resources-socket": folders.kubelet / "pod-resources/kubelet.sock",
        "kubelet-dir": folders.kubelet,
        "sysfs-root": node.driver.sysfs_root,
        "state-dir": folders.agent / "state",
        "host-root": folders.host_root,
        "driver-library": node.driver.library,
        "metrics-address": "127.0.0.1",
        "metrics-port": port,
        "log-level": "error",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    words += [f"--metrics-also-as={name}" for name in MetricNames]
    compileall.compile_dir(Path(purser.__file__).parent, quiet=1)
    process = subprocess.Popen(
        [sys.executable, "-c", "from purser.cli import main; main()", "agent", "run", *words],
        env=os.environ | {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull},
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def registered(port: int, started: float, process: int) -> float:
    """Seconds until the agent is ready: kubelet knows its devices."""
    while not await asyncio.to_thread(is_ready, port):
        os.kill(process, 0)
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
            return True
    except OSError:
        return False


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


def memory_mib(process: int, field: str) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]


def cpu_s(process: int) -> float:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="h100-8")
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--rest", type=float, default=60.0, help="seconds without anybody who asks")
    parser.add_argument("--scrapes", type=int, default=100)
    given = parser.parse_args()
    configure_logs(LogLevel.ERROR)
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as folder:
        asyncio.run(measure(Path(folder), given.profile, given.pods, given.rest, given.scrapes))


if __name__ == "__main__":
    main()
