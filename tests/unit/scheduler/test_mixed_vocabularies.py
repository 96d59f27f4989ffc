"""Pods in the words of every system on the same GPUs, with other vendors' devices beside them: one book.

Each pod goes the way of a real one: webhook, placement, signed grant with the records of the systems whose words it
uses, and back by its annotations as informers bring them. What must be held is counted here by hand, from what the pod
was meant to have. Meanwhile GPUs disappear and come back, and units of memory change.
"""

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.scenarios.vocabularies import KAI_SCHEDULER, VENDOR_FAMILIES, Meant, by_annotation, for_gpus, for_vendors
from tests.unit.scheduler.reviews import ask, container, patched, pod

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
from purser.scheduler.webhook.validation import Validation

FAMILIES = families_of(VENDOR_FAMILIES)
GPUS = {"n0": (16384, 16384, 40960, 40960), "n1": (24564,) * 4, "n2": (81920,)}
UNITS = ({}, {"aliyun.com/gpu-mem": 1}, {"volcano.sh/gpu-memory": 16, "volcano.sh/vgpu-memory": 10})


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

    def arrive(self, number: int) -> None:
        act = self.dice.random()
        several = self.dice.choice((1, 1, 1, 2, 3))
        if act < 0.25:
            parts = [for_vendors(self.dice)]
        elif act < 0.4:
            parts = [by_annotation(self.dice)]
        else:
            parts = [for_gpus(self.dice, self.units) for _ in range(several)]
        names = [f"c{place}" for place in range(len(parts))]
        limits = [{word: str(amount) for word, amount in part.limits.items()} for part in parts]
        containers = [container(name, limits=each) for name, each in zip(names, limits, strict=True)]
        obj = self.in_kais_words(parts[0], containers) if parts[0].annotations else pod(*containers)
        rules, adopted = DeviceRules(families=VENDOR_FAMILIES, memory_units=self.units.items()), (KAI_SCHEDULER,)
        obj = self.reviewed(obj, Mutation(devices=rules, adopted=adopted))
        assert self.reviewed(obj, Validation(devices=rules, adopted=adopted)) == obj
        uid = f"u{number}"
        obj["metadata"] |= {"name": f"p{number}", "namespace": "default", "uid": uid}
        self.bind(uid, obj, dict(zip(names, parts, strict=True)))

    def in_kais_words(self, part: Meant, containers: list[dict[str, Any]]) -> dict[str, Any]:
        """With a container that asks for nothing, before or behind."""
        named = {"gpu-fraction-container-name": "c0"} if self.dice.random() < 0.5 else {}
        others = [container("proxy")]
        parts = [*others, *containers] if named else [*containers, *others]
        return pod(*parts, annotations={**part.annotations, **named}, schedulerName=KAI_SCHEDULER)

    def reviewed(self, obj: dict[str, Any], webhook: Mutation | Validation) -> dict[str, Any]:
        response = ask(webhook, obj)
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
            if not request.family and self.cache.is_hami_node(name):
                record |= hami.hami_node_annotations(reading.spec, grant, 10**18, is_served_by_plugin=False)
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
            self.words[part.word] += 1
            for uuid in uuids:
                mib = part.mib_of(devices[uuid].memory_mib)
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
        gone = "the node does not report this device"
        assert {each.problem for each in self.cache.ledger.violations()} <= {gone}
        assert not self.cache.bound_grants.untrusted and not self.cache.bound_grants.ungranted

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
    assert len(run(1, 250).words) == 17


@pytest.mark.gate
def test_one_book_after_thousands_of_arrivals_and_departures() -> None:
    assert len(run(2, 5000).words) == 17
