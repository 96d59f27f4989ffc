"""How long `purser why` takes: a cluster of so many nodes, full of shares, and a pod that fits nowhere.

    python benchmarks/why.py [--nodes 1000] [--shares 1]

Prints the time of each step, and how much of it the processor worked, which counts where others work beside: reading
the file, the cluster of it, the verdicts, reasons and suggestions; the same question to a decision log of the same
nodes and shares; the read API's document on the pod, of the running scheduler's own state, and what kube-scheduler
waits for an answer beside such a search and without one. Then that of the whole command, in a process of its own.
"""

import argparse
import asyncio
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from purser.adapters.nodes import inventory_of
from purser.adapters.objects import ClusterObjects, objects_of_dump
from purser.core.decisions import encode
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.recording import DecisionInputs, Recording
from purser.core.decisions.transcript import Transcript
from purser.core.fleet import Fleet
from purser.core.grant.quota import UNLIMITED
from purser.core.grant.signing import GRANT_ANNOTATION, read
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.names import INVENTORY_ANNOTATION, SCHEDULER_NAME
from purser.core.placement import Evaluator, kernels
from purser.core.placement.mix import Mix
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.kube import Client, EventRecorder
from purser.kube.failures import ObjectFailures
from purser.kube.objects import Pod
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NAMESPACES, NODES, PODS
from purser.kube.store import StaticStore
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining import Explainer, LogFile, explain_from_log
from purser.scheduler.extender import KubeExtender
from purser.scheduler.extender_api import ExtenderArgs
from purser.scheduler.keys import GrantKeys
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.read_api import SharedReads, WhyPage
from purser.scheduler.read_api.page import Scope

MEMORY_MIB = 81920


def node(name: str, chance: random.Random) -> dict[str, object]:
    """Eight GPUs; of every tenth node a taint."""
    devices = tuple(Device(f"GPU-{name}-{i}", i, "NVIDIA H100", MEMORY_MIB, slots=10) for i in range(8))
    annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(NodeInventory(name, devices)).decode()}
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "80"}
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if chance.random() < 0.1 else []
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "annotations": annotations, "labels": {"zone": f"z{len(name) % 3}"}},
        "spec": {"taints": taints},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name: str, memory: int, on: str = "", gpu: int = 0) -> dict[str, object]:
    """One share; of a pod on a node with its grant."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory), "cpu": "2", "memory": "8Gi"}
    part = ContainerGrant("main", ContainerKind.APP, (DeviceShare(f"GPU-{on}-{gpu}", memory, 0),))
    grant = msgspec.json.encode(Grant(f"uid-{name}", "team", name, on, (part,))).decode()
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "annotations": {GRANT_ANNOTATION: grant} if on else {},
        },
        "spec": {
            "nodeName": on,
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def cluster(nodes: int, shares: int, chance: random.Random) -> bytes:
    """On each GPU so many pods, which leave too little for the pod that waits."""
    names = [f"node-{number}" for number in range(nodes)]
    items = [node(name, chance) for name in names]
    for name in names:
        for gpu in range(8):
            for share in range(shares):
                memory = chance.randrange(40000 // shares, 70000 // shares, 1000)
                items.append(pod(f"{name}-{gpu}-{share}", memory, name, gpu))
    return json.dumps({"items": [*items, pod("waits", 60000)]}).encode()


def decision_log(objects: ClusterObjects) -> bytes:
    """Of one decision, on the pod that waits."""
    fleet, mix = Fleet(), Mix()
    for each in objects.nodes:
        inventory = inventory_of(each)
        assert inventory is not None
        fleet.set_inventory(inventory)
    for each in objects.pods:
        grant = read(each.metadata.annotations)
        if grant is not None:
            fleet.ledger.adopt(grant)
    asked = ContainerRequest("main", ContainerKind.APP, DeviceRequest(1, 60000))
    request = PodRequest("uid-waits", "team", "waits", (asked,), cpu_milli=2000, memory_mib=8192)
    evaluator = Evaluator(fleet, mix=mix)
    recording = Recording(fleet, evaluator, mix)
    notes = recording.start(0.0)
    found = evaluator.evaluate(request, fleet.names())
    notes += recording.judged(0.0, DecisionInputs(request, UNLIMITED, {}), found, "filter")
    return MAGIC + b"".join(map(encode, Transcript(LoggedNames()).records(notes)))


class NoKeys:
    """Nothing is signed."""

    async def refresh(self) -> None:
        """There are none."""


class Stored:
    """In the place of a client: the API server has the pods that were read."""

    failures = ObjectFailures()

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods = {each.metadata.name: each for each in pods}

    async def get(self, resource: object, name: str, namespace: str) -> Pod:
        return self._pods[name]


async def in_scheduler(objects: ClusterObjects) -> None:
    """The document on the pod that waits; then filter for pods that fit, alone and beside searches."""
    cache, failures, metrics = ClusterCache(None), ObjectFailures(), SchedulerMetrics()
    stores = (
        StaticStore(PODS, objects.pods, failures),
        StaticStore(NODES, objects.nodes, failures),
        StaticStore(RESOURCE_QUOTAS, (), failures),
        StaticStore(NAMESPACES, (), failures),
    )
    cache.take(*stores)
    client = cast(Client, Stored(objects.pods))
    events = EventRecorder(client, "purser-scheduler", "here")
    extender = KubeExtender(client, cache, cast(GrantKeys, NoKeys()), DEFAULT_POLICIES, metrics, events)
    names = cache.fleet.names()

    def page() -> WhyPage:
        """New for each answer: a page keeps them for a second."""
        reads = SharedReads(cache.clock)
        return WhyPage(client, cache, extender.pending, extender.searches.search, lambda: True, reads)

    async def filters() -> list[float]:
        times = []
        for number in range(100):
            asked = msgspec.convert(pod(f"fits-{number}", 1000 + number), Pod)
            due = time.perf_counter() + 0.01
            await asyncio.sleep(0.01)
            await extender.filter(ExtenderArgs(asked, list(names)))
            times.append(1000 * (time.perf_counter() - due))  # with what it waited for its turn
        return sorted(times)

    async def searches() -> None:
        while True:
            await page().of("waits", Scope("team", True), "jane")
            extender.searches._evaluator = extender._evaluator.for_trials()  # else it knows the verdicts

    await filters()
    for what in ("live why", "the next one"):
        with measured(what):
            document = await page().of("waits", Scope("team", True), "jane")
    assert document is not None
    print(f"document of {document.length} bytes: {document.pieces[0][:4000].decode()}")
    alone = await filters()
    search = asyncio.ensure_future(searches())
    beside = await filters()
    search.cancel()
    for what, times in (("alone", alone), ("beside searches", beside)):
        print(f"filter {what}: median {times[50]:.1f} ms, 95% {times[95]:.1f} ms, longest {times[-1]:.1f} ms")


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print how long it took, and how long the processor worked for it."""
    begun, worked = time.perf_counter(), _worked_s()
    yield
    print(f"{what:14} {time.perf_counter() - begun:6.2f} s, {_worked_s() - worked:6.2f} s of processor time")


def _worked_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    """Measure, and print a row for each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--shares", type=int, default=1, help="pods on each of eight GPUs of a node")
    options = parser.parse_args()
    nodes = options.nodes
    kernels.use("numpy")
    text = cluster(nodes, options.shares, random.Random(1))
    with measured("reading"):
        objects = objects_of_dump(text)
    with measured("the cluster"):
        explainer = Explainer(objects)
    with measured("why"):
        found = explainer.explain("team", "waits")
    print(f"{nodes} nodes, {len(objects.pods)} pods, {len(text) / 1e6:.0f} MB")
    for each in found.suggestions:
        print(f"- {each.text}")
    log = decision_log(objects)
    with measured("why, of a log"):
        found = explain_from_log([LogFile("log", lambda: io.BytesIO(log))], "team", "waits")
    print(f"log of {len(log) / 1e6:.0f} MB")
    for each in found.suggestions:
        print(f"- {each.text}")
    asyncio.run(in_scheduler(objects))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        file.write_bytes(text)
        command = [sys.executable, "-c", "import purser.cli; purser.cli.main()"]
        with measured("the command"):
            subprocess.run([*command, "why", "waits", "-n", "team", f"--from={file}"], check=True, capture_output=True)


if __name__ == "__main__":
    main()
