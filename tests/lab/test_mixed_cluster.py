"""A mixed cluster: pods in the words of every system on the same GPUs, some of them placed by Volcano's scheduler, and
other vendors' devices beside them.

Pods come and go at random, and servers restart. What was meant for each pod, known from what it asks for in its own
system's words, is compared with what its containers see, with what Purser's commands read, and with what the scheduler
itself counts.
"""

import asyncio
import random
import re
from collections import Counter
from contextlib import suppress

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from purser.adapters.snapshot import fleet_of
from purser.core.dialects.hami_codec import decode_pod_devices
from purser.core.grant.signing import read
from purser.kube.errors import NotFoundError
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.hollow import HollowNodes
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.lab.lab_cluster import check_invariants
from tests.lab.volcano import MEMORY, NUMBER, SCHEDULER, Volcano
from tests.scenarios.actions import RAW_PODS
from tests.scenarios.vocabularies import KAI_SCHEDULER, VENDOR_FAMILIES, Meant, by_annotation, for_gpus, for_vendors
from tests.tiers import TIER, Tier

pytestmark = pytest.mark.gate

EVENTS = 5000 if TIER is Tier.SOAK else 200
AT_ONCE = 12
"""Arrivals and departures between two looks."""
MAX_PODS = 45
MIB = 1 << 20
_LIST = re.compile("hami.io/.*-devices-allocated")
ENDS = ("Running", "Failed")
INTERRUPTED = ("cannot allocate unhealthy devices", "code = Canceled", "code = Unavailable")
"""kubelet's words for a pod that came when no device plugin had registered yet, or when the agent was killed."""


class Mixed:
    """The cluster, and what was meant for each of its pods."""

    def __init__(self, lab: Lab, seed: int) -> None:
        self.lab, self.dice = lab, random.Random(seed)
        self.meant: dict[str, dict[str, Meant]] = {}
        self.served: set[str] = set()
        """Names of pods that Volcano's scheduler places."""
        self.words: Counter[str] = Counter()
        """That ran, by the shortest resource of a container."""

    async def arrive(self, number: int) -> None:
        name, dice = f"p{number}", self.dice
        act = dice.random()
        if act < 0.25:
            parts = [for_vendors(dice)]
        elif act < 0.4:
            self.served.add(name)
            mib = dice.choice((1000, 5000))
            parts = [dice.choice((Meant({MEMORY: mib}, 1, mib), Meant({NUMBER: 1}, 1, percent=100, cores=100)))]
        elif act < 0.5:
            parts = [by_annotation(dice)]
        else:
            parts = [for_gpus(dice, {}) for _ in range(dice.choice((1, 1, 1, 2, 3)))]
        self.meant[name] = {f"c{place}": part for place, part in enumerate(parts)}
        containers = [
            {
                "name": each,
                "image": "busybox",
                "resources": {"limits": {word: str(n) for word, n in part.limits.items()}},
            }
            for each, part in self.meant[name].items()
        ]
        annotations = parts[0].annotations
        scheduler = SCHEDULER if name in self.served else KAI_SCHEDULER if annotations else ""
        spec = {"containers": containers, **({"schedulerName": scheduler} if scheduler else {})}
        metadata = {"name": name, "annotations": annotations}
        await self.lab.client.create(RAW_PODS, {"metadata": metadata, "spec": spec}, "default")

    async def leave(self) -> None:
        if self.meant:
            name = self.dice.choice(sorted(self.meant))
            del self.meant[name]
            with suppress(NotFoundError):
                await self.lab.client.delete(PODS, name, "default", grace_period_seconds=0)

    async def restart(self) -> None:
        """A server; the webhooks are the scheduler's, which is there again when this is over."""
        node = self.dice.choice(sorted(self.lab.nodes))
        match self.dice.choice(("kubelet", "agent", "scheduler")):
            case "kubelet":
                await self.lab.restart_kubelet(node)
            case "agent":
                await self.lab.kill_agent(node)
                self.lab.start_agent(node)
            case _:
                await self.lab.kill_scheduler()
                await self.lab.start_scheduler()
        await self.lab.ready()

    async def look(self, *, with_metrics: bool = False) -> None:
        """Every book and every container says what was meant. Metrics do so some seconds later."""
        while (differs := await self.difference(with_metrics)) is not None:
            assert not waiting.is_over(), differs
            await asyncio.sleep(0.1)

    async def difference(self, with_metrics: bool) -> str | None:
        """What is between two states; None: all is exact. Raises AssertionError for what is wrong in any state."""
        pods = (await self.lab.client.list(PODS, "default")).items
        if there := {pod.metadata.name for pod in pods} ^ self.meant.keys():
            return f"pods that are to go or to come: {there}"
        if between := [pod.metadata.name for pod in pods if pod.spec.node_name and pod.status.phase not in ENDS]:
            return f"pods that are bound and have not started: {between}"
        fleet, problems = fleet_of((await self.lab.client.list(NODES)).items, pods)
        assert not problems
        devices = {state.device.uuid: state.device for node in fleet for state in node.devices}
        wanted = {what: Counter() for what in ("mib", "cores", "pods")}
        for pod in pods:
            name, held = pod.metadata.name, set[str]()
            if pod.status.phase == "Failed":
                assert name in self.served or any(part in pod.status.message for part in INTERRUPTED), pod
            if pod.status.phase != "Running":
                continue
            grant = read(pod.metadata.annotations)
            assert grant is not None
            for container, part in self.meant[name].items():
                uuids = grant.of(container).uuids
                assert len(set(uuids)) == part.count
                self.words[part.word] += 1
                for uuid in uuids:
                    wanted["mib"][uuid] += part.mib_of(devices[uuid].memory_mib)
                    wanted["cores"][uuid] += part.cores
                held |= {*uuids}
                self.check_container(pod, container, part, uuids, devices)
            wanted["pods"].update(held)
        found = {what: Counter() for what in wanted}
        for node in fleet:
            for uuid, usage in fleet.ledger.usage(node.name).items():
                found["mib"][uuid] += usage.memory_mib
                found["cores"][uuid] += usage.cores_percent
                found["pods"][uuid] += usage.pods
        assert {what: +each for what, each in found.items()} == {what: +each for what, each in wanted.items()}
        for uuid, device in devices.items():
            assert wanted["mib"][uuid] <= device.memory_mib
            assert wanted["cores"][uuid] <= device.cores_percent
        held = wanted["mib"].total()
        counted = await self.scheduler_counts() if with_metrics else held
        return None if counted == held else f"the scheduler counts {counted} MiB, and {held} are held"

    def check_container(self, pod, name, part, uuids, devices) -> None:
        annotations, node = pod.metadata.annotations, self.lab.nodes.get(pod.spec.node_name)
        if node is None:  # another vendor's: its plugin goes by the record
            (record,) = (text for key, text in annotations.items() if _LIST.fullmatch(key))
            (recorded, *_) = decode_pod_devices(record)
            assert tuple(device.uuid for device in recorded) == uuids
            assert annotations["hami.io/bind-phase"] == "success"
            return
        env = dict(node.container(pod.metadata.uid, name).env)
        assert sorted(env["NVIDIA_VISIBLE_DEVICES"].split(",")) == sorted(uuids)
        limits = [text for key, text in env.items() if key.startswith("CUDA_DEVICE_MEMORY_LIMIT_")]
        is_whole = part.percent == 100 and part.cores == 100
        wanted = [] if is_whole else [f"{part.mib_of(devices[uuid].memory_mib)}m" for uuid in uuids]
        assert sorted(limits) == sorted(wanted)
        portions = {part.portion_of(devices[uuid].memory_mib) for uuid in uuids} if part.annotations else {None}
        assert {env.get("GPU_PORTION"), env.get("RUNAI_NUM_OF_GPUS")} == portions

    async def scheduler_counts(self) -> int:
        """MiB that it says pods hold; -1 while it does not answer."""
        try:
            port = self.lab.scheduler_metrics_port
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
                text = await response.text()
        except aiohttp.ClientConnectionError:
            return -1
        families = {family.name: family for family in text_string_to_metric_families(text)}
        return round(sum(each.value for each in families["purser_cluster_granted_memory_bytes"].samples) / MIB)


async def test_pods_of_all_systems_and_vendors_come_and_go_and_all_books_are_exact(quiet_logs):
    hollow = tuple(HollowNodes(name=f"vendor-{n}", gpus=4, family=family) for n, family in enumerate(VENDOR_FAMILIES))
    nodes = node_choices(["t4-4", "a100-40gb-8"])
    settings = LabSettings(
        nodes,
        hollow=hollow,
        adopted_scheduler_names=(KAI_SCHEDULER,),
        served_scheduler_names=(SCHEDULER,),
        probe_interval_s=0.5,
    )
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        mixed, volcano = Mixed(lab, 1), asyncio.create_task(Volcano(lab.client, 0.2).run())
        for number in range(EVENTS):
            crowded = len(mixed.meant) > MAX_PODS
            if mixed.dice.random() < (0.3 if crowded else 0.65):
                await mixed.arrive(number)
            else:
                await mixed.leave()
            if number % AT_ONCE == AT_ONCE - 1:
                await mixed.look()
            if number % 50 == 49:
                await mixed.restart()
        await mixed.look(with_metrics=True)
        assert len(mixed.words) == 17, mixed.words
        while mixed.meant:
            await mixed.leave()
        await mixed.look(with_metrics=True)
        await check_invariants(lab)
        volcano.cancel()
