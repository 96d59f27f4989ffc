"""Pods in the words of every system on the same GPUs, with other vendors' devices beside them: one book.

Each pod goes the way of a real one: webhook, placement, signed grant with the records of the systems whose words it
uses, and back by its annotations as informers bring them. What must be held is counted here by hand, from what the pod
was meant to have. Meanwhile GPUs disappear and come back, and units of memory change.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.scheduler.reviews import container, patched, pod, review

from purser.core.dialects import grant_annotations, hami
from purser.core.grant.signing import sign
from purser.core.model import Device, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.core.placement import Placement, place, to_grant
from purser.core.vendors.catalogue import families_of
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION, registration
from purser.kube.codec import codec_of
from purser.kube.objects import Node, Pod
from purser.kube.resources import NODES, PODS
from purser.lab.hollow import vendors
from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.webhook.device_rules import DeviceRules
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import decode_review, encode_review
from purser.scheduler.webhook.validation import Validation

FAMILY_NAMES = ("Hygon DCU", "Cambricon MLU", "Iluvatar MR-V100", "AMD")
FAMILIES = families_of(FAMILY_NAMES)
GPUS = {"n0": (16384, 16384, 40960, 40960), "n1": (24564,) * 4, "n2": (81920,)}
UNITS = ({}, {"aliyun.com/gpu-mem": 1}, {"volcano.sh/gpu-memory": 16, "volcano.sh/vgpu-memory": 10})
GPU, MLU, MR = "nvidia.com/gpu", "cambricon.com/mlu.smlu.v", "iluvatar.ai/MR-V100"
CORES = "nvidia.com/gpucores"
Limits = dict[str, int]


@dataclass(frozen=True)
class Meant:
    """What a container was meant to have of each of so many devices. ``percent``: of memory, where no MiB are said."""

    limits: Limits
    count: int = 1
    mib: int = 0
    percent: int = 0
    cores: int = 0


class Keys:
    """The scheduler's."""

    def __init__(self) -> None:
        self.signing = Ed25519PrivateKey.generate()
        self.public = (self.signing.public_key(),)


class Cluster:
    """The objects of an API server, and a scheduler's cache of them."""

    def __init__(self, seed: int) -> None:
        self.dice, self.keys = random.Random(seed), Keys()
        self.gpus = {name: list(range(len(sizes))) for name, sizes in GPUS.items()}
        self.units: dict[str, int] = {}
        self.pods: dict[str, Pod] = {}
        self.held: dict[str, list[tuple[str, str, int, int]]] = {}
        """By uid: node, uuid, MiB and percent of compute."""
        self.words: Counter[str] = Counter()
        self.cache = self.restarted()

    def restarted(self) -> ClusterCache:
        cache = ClusterCache(self.keys, families=FAMILIES)
        for obj in self.dice.sample([*map(self.node, GPUS), *self.pods.values()], len(GPUS) + len(self.pods)):
            cache.put_node(obj) if isinstance(obj, Node) else cache.put_pod(obj)
        return cache

    def node(self, name: str) -> Node:
        sizes = GPUS[name]
        devices = tuple(Device(f"{name}-{i}", i, "NVIDIA A100", sizes[i], slots=10) for i in self.gpus[name])
        inventory = NodeInventory(name, devices)
        annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()}
        if name == "n0":  # HAMi's scheduler knows it
            annotations[REGISTER_ANNOTATION] = registration(inventory)
        listed: dict[str, str] = {}
        for family in FAMILIES:
            annotations |= vendors.registration(family, name, 2)
            listed |= vendors.listed(family, 2)
        status = {"capacity": listed, "allocatable": listed}
        body = {"metadata": {"name": name, "uid": name, "annotations": annotations}, "status": status}
        return codec_of(NODES).object(json.dumps(body).encode())

    def meant(self) -> Meant:
        """By hand, as each system's documentation says it; not through the dialects."""
        some, count = self.dice.choice, self.dice.choice((1, 1, 1, 2))
        mib, cores = some((512, 1000, 4096, 9000)), some((0, 10, 30))
        share = self.units.get("aliyun.com/gpu-mem", 1024)
        block, vblock = (self.units.get(f"volcano.sh/{word}", 1) for word in ("gpu-memory", "vgpu-memory"))
        n = self.dice.randint(1, 3)
        return self.dice.choice(
            (
                Meant({GPU: count}, count, percent=100, cores=100),
                Meant(
                    {"nvidia.com/gpu": count, "nvidia.com/gpumem": mib, "nvidia.com/gpucores": cores},
                    count,
                    mib,
                    0,
                    cores,
                ),
                Meant({GPU: count, "nvidia.com/gpumem-percentage": 25}, count, percent=25),
                Meant({"nvidia.com/gpumem": mib}, 1, mib),
                Meant({"volcano.sh/gpu-memory": mib}, 1, mib * block),
                Meant({"volcano.sh/gpu-number": count}, count, percent=100, cores=100),
                Meant({"volcano.sh/vgpu-number": count, "volcano.sh/vgpu-memory": mib}, count, mib * vblock),
                Meant({"volcano.sh/vgpu-memory-percentage": 10, "volcano.sh/vgpu-cores": 20}, 1, 0, 10, 20),
                Meant({"aliyun.com/gpu-mem": n}, 1, n * share),
                Meant({"aliyun.com/gpu-mem": 5 * n}, 1, 5 * n * share),
            )
        )

    def of_vendor(self) -> Meant:
        units = self.dice.choice((2, 8))
        return self.dice.choice(
            (
                Meant({"hygon.com/dcunum": 1, "hygon.com/dcumem": 1000, "hygon.com/dcucores": 10}, 1, 1000, 0, 10),
                Meant({"cambricon.com/vmlu": 1, f"{MLU}memory": units, f"{MLU}core": 20}, 1, 256 * units, 0, 20),
                Meant({f"{MR}-vgpu": 1, f"{MR}.vMem": units, f"{MR}.vCore": 10}, 1, 256 * units, 0, 10),
                Meant({"amd.com/gpu": 1}, 1, percent=100, cores=100),
            )
        )

    def arrive(self, number: int) -> None:
        is_vendors = self.dice.random() < 0.25
        parts = [self.of_vendor()] if is_vendors else [self.meant() for _ in range(self.dice.choice((1, 1, 1, 2, 3)))]
        names = [f"c{place}" for place in range(len(parts))]
        limits = [{word: str(amount) for word, amount in part.limits.items()} for part in parts]
        obj: dict[str, Any] = pod(*(container(name, limits=each) for name, each in zip(names, limits, strict=True)))
        rules = DeviceRules(families=FAMILY_NAMES, memory_units=self.units.items())
        obj = self.reviewed(obj, Mutation(devices=rules))
        assert self.reviewed(obj, Validation(devices=rules)) == obj
        uid = f"u{number}"
        obj["metadata"] |= {"name": f"p{number}", "namespace": "default", "uid": uid}
        self.bind(uid, obj, dict(zip(names, parts, strict=True)))

    def reviewed(self, obj: dict[str, Any], webhook: Mutation | Validation) -> dict[str, Any]:
        request = decode_review(json.dumps(review(obj)).encode())
        response = json.loads(encode_review(request, webhook.review(request)))["response"]
        assert response["allowed"], response
        return patched(obj, response)

    def bind(self, uid: str, obj: dict[str, Any], parts: dict[str, Meant]) -> None:
        waiting = codec_of(PODS).object(json.dumps(obj).encode())
        self.cache.put_pod(waiting)
        reading = self.cache.readings.of(waiting)
        request = reading.request()
        assert request is not None and not reading.objection
        for name in self.dice.sample(list(GPUS), len(GPUS)):
            node = self.cache.fleet.node(name)
            assert node is not None
            found = place(node, request)
            if not isinstance(found, Placement):
                continue
            grant = to_grant(found, request, node.inventory)
            there = {f"{name}-{index}" for index in self.gpus[name]}
            assert request.family or grant.uuids <= there
            self.cache.ledger.reserve(grant)
            record = grant_annotations(reading.spec, request.systems, grant, node.inventory, 10**18 + int(uid[1:]))
            if not request.family and self.cache.is_known_to_hami(name):
                record |= hami.node_annotations(reading.spec, grant, 10**18, is_plugins=False)
            obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), **record}
            obj["metadata"]["annotations"] |= sign(grant, self.keys.signing)
            obj["spec"]["nodeName"] = name
            self.pods[uid] = codec_of(PODS).object(json.dumps(obj).encode())
            self.cache.put_pod(self.pods[uid])
            self.note(uid, grant, parts, {state.device.uuid: state.device for state in node.devices})
            return
        self.cache.remove_pod(waiting)

    def note(self, uid: str, grant: Any, parts: dict[str, Meant], devices: dict[str, Device]) -> None:
        self.held[uid] = []
        for name, part in parts.items():
            uuids = grant.of(name).uuids
            assert len(set(uuids)) == part.count
            self.words[min(part.limits, key=len)] += 1
            for uuid in uuids:
                mib = part.mib or devices[uuid].memory_mib * part.percent // 100
                self.held[uid].append((grant.node, uuid, mib, part.cores))

    def leave(self) -> None:
        if not self.pods:
            return
        uid = self.dice.choice(list(self.pods))
        gone = self.pods.pop(uid)
        del self.held[uid]
        if self.dice.random() < 0.5:
            ended = msgspec.structs.replace(gone, status=msgspec.structs.replace(gone.status, phase="Succeeded"))
            self.cache.put_pod(ended)
        self.cache.remove_pod(gone)

    def change(self) -> None:
        """A GPU goes, or all are back; another unit."""
        name = self.dice.choice(list(GPUS))
        whole = list(range(len(GPUS[name])))
        left = self.gpus[name][1:] if self.dice.random() < 0.5 and len(self.gpus[name]) > 1 else whole
        self.gpus[name] = left
        self.cache.put_node(self.node(name))
        self.units = dict(self.dice.choice(UNITS))

    def check(self) -> None:
        wanted: dict[str, Counter[str]] = {what: Counter() for what in ("mib", "cores", "pods")}
        for shares in self.held.values():
            for _, uuid, mib, cores in shares:
                wanted["mib"][uuid] += mib
                wanted["cores"][uuid] += cores
            wanted["pods"].update({uuid for _, uuid, _, _ in shares})
        found: dict[str, Counter[str]] = {what: Counter() for what in wanted}
        for name in GPUS:
            for uuid, usage in self.cache.ledger.usage(name).items():
                found["mib"][uuid] += usage.memory_mib
                found["cores"][uuid] += usage.cores_percent
                found["pods"][uuid] += usage.pods
        assert {what: +each for what, each in found.items()} == {what: +each for what, each in wanted.items()}
        for name, sizes in GPUS.items():
            for index, size in enumerate(sizes):
                assert wanted["mib"][f"{name}-{index}"] <= size
                assert wanted["cores"][f"{name}-{index}"] <= 100
        assert not self.cache.untrusted and not self.cache.ungranted

    def check_restart(self) -> None:
        fresh = self.restarted()
        for name in GPUS:
            assert dict(fresh.ledger.usage(name)) == dict(self.cache.ledger.usage(name))
        assert {grant.pod_uid: grant for grant in fresh.ledger.grants()} == {
            grant.pod_uid: grant for grant in self.cache.ledger.grants()
        }


def run(seed: int, events: int) -> Cluster:
    cluster = Cluster(seed)
    for number in range(events):
        crowded = len(cluster.pods) > 40
        act = cluster.dice.random()
        if act < (0.35 if crowded else 0.6):
            cluster.arrive(number)
        elif act < 0.97:
            cluster.leave()
        else:
            cluster.change()
        cluster.check()
        if number % 100 == 99:
            cluster.check_restart()
    return cluster


def test_one_book_for_all_vocabularies_and_vendors() -> None:
    assert len(run(1, 250).words) == 11


@pytest.mark.gate
def test_one_book_after_thousands_of_arrivals_and_departures() -> None:
    assert len(run(2, 5000).words) == 11
