"""What a cluster tells of a workload's run: the events, pods and nodes that kubectl would print."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from purser.backtest.dump import read_dumps
from purser.backtest.history import Omissions
from purser.backtest.objects import Dump
from purser.core.fleet.facts import FleetNodeFacts
from purser.core.kubernetes.times import spelled
from purser.core.model import Device, NodeInventory
from purser.core.names import ASKED_ANNOTATION, INVENTORY_ANNOTATION
from purser.core.placement.shape import PodShape
from purser.simulator import departures
from purser.simulator.orders import timed_order
from purser.simulator.workload import SimWorkload

BEGIN_S = 1_790_000_000
"""Of all histories here."""

Raw = dict[str, Any]


def event(
    about: str, uid: str, reason: str, message: str, at_s: float, kind: str = "Pod", count: int = 1, **more: Any
) -> Raw:
    """As kubelet and Purser write one, with whole seconds."""
    name = f"{about}.{reason.lower()}.{at_s:.3f}"
    return {
        "kind": "Event",
        "metadata": {"name": name, "namespace": "ns", "uid": f"event-{uid}-{name}", **more},
        "involvedObject": {"kind": kind, "namespace": "ns", "name": about, "uid": uid},
        "reason": reason,
        "message": message,
        "count": count,
        "firstTimestamp": spelled(at_s),
        "lastTimestamp": spelled(at_s),
        "eventTime": None,
    }


def granted(about: str, uid: str, node: str, shape: PodShape, at_s: float) -> Raw:
    annotations = {ASKED_ANNOTATION: msgspec.json.encode(shape).decode()}
    return event(about, uid, "Granted", f"Granted GPU 0 on node {node}", at_s, annotations=annotations)


def bound(about: str, uid: str, node: str, at_s: float) -> Raw:
    return event(about, uid, "Scheduled", f"Successfully assigned ns/{about} to {node}", at_s)


def refused(about: str, uid: str, at_s: float) -> Raw:
    return event(about, uid, "FailedScheduling", "0/1 nodes are available", at_s, count=7)


def killed(about: str, uid: str, at_s: float) -> Raw:
    return event(about, uid, "Killing", "Stopping container main", at_s)


def life(about: str, uid: str, node: str, shape: PodShape, times: tuple[float, float, float | None]) -> list[Raw]:
    """All events of a pod that was created, bound and deleted at these times."""
    created_s, bound_s, ended_s = (None if at is None else BEGIN_S + at for at in times)
    found = [] if created_s == bound_s else [refused(about, uid, created_s)]
    found += [granted(about, uid, node, shape, bound_s), bound(about, uid, node, bound_s)]
    return found if ended_s is None else [*found, killed(about, uid, ended_s)]


def node_object(node: FleetNodeFacts, created_s: float = BEGIN_S - 86400, **metadata: Any) -> Raw:
    """A node with its agent's inventory."""
    devices = tuple(
        Device(f"GPU-{node.name}-{place}", place, gpu.model, gpu.memory_mib, slots=gpu.slots)
        for place, gpu in enumerate(node.gpus)
    )
    inventory = msgspec.json.encode(NodeInventory(node.name, devices)).decode()
    allocatable = {"cpu": f"{node.cpu_free_milli}m", "memory": f"{node.memory_free_mib}Mi", "pods": "1000"}
    return {
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "creationTimestamp": spelled(created_s),
            "annotations": {INVENTORY_ANNOTATION: inventory},
            **metadata,
        },
        "status": {"allocatable": allocatable},
    }


def pod_object(name: str, uid: str, limits: Mapping[str, str], created_s: float, status: Raw, node: str = "") -> Raw:
    container = {"name": "main", "resources": {"limits": dict(limits)}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "creationTimestamp": spelled(created_s)},
        "spec": {"nodeName": node, "containers": [container]},
        "status": status,
    }


def listed(items: list[Raw]) -> bytes:
    """As ``kubectl get -o json`` prints them."""
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": items}).encode()


def dump_of(data: bytes, omissions: Omissions) -> Dump:
    """What is read of a file, which is called ``the file``. Raises `HistoryError`."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "the file"
        path.write_bytes(data)
        return read_dumps([path], omissions)


class Truth(msgspec.Struct, frozen=True):
    """A run, and what a cluster that ran it would tell."""

    allocation_percent: float
    """Mean over time, until the last event."""
    waited_mean_s: float
    items: list[Raw]


def truth(workload: SimWorkload, policy: str, until_s: float, load_percent: float | None = None) -> Truth:
    """A workload run with a policy, told until a time: pods that have not come by then are left out of all."""
    gpus = msgspec.structs.replace(workload, pods=tuple(pod for pod in workload.pods if pod.shape.gpu_count))
    order = timed_order(gpus, 3, load_percent)
    placed: dict[int, str] = {}
    run = departures.run(gpus, order, policy, learns=True, placed=lambda event, node, _: placed.update({event: node}))
    items: list[Raw] = [node_object(node) for node in gpus.nodes]
    waits, held = [], 0.0
    for number, at_s in enumerate(order.arrives_s.tolist()):
        if at_s > until_s:
            continue
        pod = gpus.pods[order.pods[number]]
        bound_s = at_s + float(run.waited_s[number]) if run.placed[number] else np.inf
        ended_s = bound_s + pod.lasts_s
        waits.append(min(bound_s, until_s) - at_s)
        name, uid = f"pod-{number}", f"u-{number}"
        if bound_s > until_s:
            items.append(refused(name, uid, BEGIN_S + at_s))
            continue
        held += pod.shape.gpu_count * pod.shape.gpu_memory_mib / 1000 * (min(ended_s, until_s) - bound_s)
        items += life(name, uid, placed[number], pod.shape, (at_s, bound_s, ended_s if ended_s <= until_s else None))
    items.append(event("last", "c", "Hello", "", BEGIN_S + until_s, kind="ConfigMap"))
    return Truth(100 * held / (gpus.gpus * until_s), float(np.mean(waits)), items)
