"""Annotations that Purser writes for HAMi's scheduler and device plugin, as HAMi's own functions read them, and theirs
as Purser reads them. ``annotations.json`` has the texts, and what those functions made of them."""

import json
from pathlib import Path

import pytest

from purser.core.device.resources import GPU_RESOURCE
from purser.core.dialects.hami import hami_node_annotations, no_devices, recorded_grant
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    Device,
    DeviceMode,
    DeviceShare,
    Enforcement,
    Grant,
    NodeInventory,
)
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors.hami_nodes import PLUGIN_LOCK, devices, is_served_by_plugin, read_gpus, registration
from purser.core.vendors.locks import HeldLock, LockHolder, lock_text, read_lock

VECTORS = json.loads((Path(__file__).parent / "annotations.json").read_text())
A, B = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76", "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4"
INIT, APP = ContainerKind.INIT, ContainerKind.APP
AT_S = 1787306400

INVENTORIES = {
    "shared": (
        Device(A, 0, "Tesla P4", 7680, slots=10, numa_nodes=(0,)),
        Device(B, 1, "NVIDIA A100-SXM4-40GB", 40960, slots=10, numa_nodes=(1,)),
    ),
    "ill": (Device(B, 3, "NVIDIA H20-3e", 143771, slots=4, healthy=False),),
    "whole": (Device(A, 0, "Tesla T4", 15360, mode=DeviceMode.WHOLE),),
    "mps": (Device(A, 0, "Tesla T4", 15360, slots=16, mode=DeviceMode.MPS, enforcement=Enforcement.MPS),),
    "divided otherwise": (
        Device(A, 0, "Tesla T4", 15360, slots=4, replicas=4, mode=DeviceMode.TIME_SLICING),
        Device("MIG-x", 0, "A100", 5000, mode=DeviceMode.MIG, resource="nvidia.com/mig-1g.5gb"),
    ),
}
PODS = {
    "one share": ([("main", APP)], {"main": [(A, 3000, 30)]}),
    "two GPUs alone": ([("main", APP)], {"main": [(A, 7680, 100), (B, 40960, 100)]}),
    "init container and one without": (
        [("setup", INIT), ("log", APP), ("main", APP)],
        {"setup": [(A, 500, 0)], "main": [(A, 1000, 0)]},
    ),
}


@pytest.mark.parametrize("name", INVENTORIES)
def test_hamis_scheduler_reads_the_gpus_of_an_agents_node(name):
    vector = VECTORS["registrations"][name]
    assert registration(NodeInventory("n", INVENTORIES[name])) == vector["text"]
    amounts = [gpu for gpu in INVENTORIES[name] if gpu.takes_amounts]
    assert [
        (gpu["id"], gpu["index"], gpu["count"], gpu["devmem"], gpu["devcore"], gpu["numa"], gpu["health"])
        for gpu in vector["read"]
    ] == [
        (gpu.uuid, gpu.index, gpu.slots, gpu.memory_mib, 100, next(iter(gpu.numa_nodes), 0), gpu.healthy)
        for gpu in amounts
    ]
    assert not amounts or not is_served_by_plugin(read_gpus(vector["text"]))


def test_purser_reads_the_gpus_that_hamis_plugin_registers():
    gpus = read_gpus(VECTORS["of_hami"])
    assert is_served_by_plugin(gpus)
    first, second = devices(gpus, {GPU_RESOURCE: "20"})  # the third is in HAMi's MIG mode
    assert (first.uuid, first.index, first.model, first.memory_mib, first.healthy) == (A, 0, "Tesla P4", 7680, True)
    assert (second.uuid, second.index, second.model, second.memory_mib) == (B, 4, "NVIDIA H20-3e", 258787)
    assert (second.cores_percent, second.numa_nodes, second.healthy) == (500, (1,), False)


@pytest.mark.parametrize("name", PODS)
def test_hamis_plugin_serves_each_container_what_it_was_granted(name):
    (containers, held), vector = PODS[name], VECTORS["pods"][name]
    pod = PodManifest("u", "team", "job", {}, tuple(ContainerSpec(*each) for each in containers))
    parts = tuple(
        ContainerGrant(of, kind, tuple(DeviceShare(*share) for share in held[of]), Enforcement.HAMI_CORE)
        for of, kind in containers
        if of in held
    )
    grant = Grant("u", "team", "job", "n", parts)
    assert hami_node_annotations(pod, grant, AT_S * 10**9, is_served_by_plugin=True) == vector["annotations"]
    granted = [[[uuid, "NVIDIA", mib, cores] for uuid, mib, cores in held.get(of, [])] for of, _ in containers]
    assert vector["allocated"] == [*granted, []]
    served = {containers[each["container"]][0]: each["devices"] for each in vector["served"]}
    assert served == {of: each for (of, _), each in zip(containers, granted, strict=True) if each}
    recorded = PodManifest("u", "team", "job", vector["annotations"], pod.containers)
    assert recorded_grant(recorded) == grant


def test_a_pod_that_was_served_by_purser_has_nothing_left_for_hamis_plugin():
    assert no_devices(2) == VECTORS["served"]["text"]
    assert not any(VECTORS["served"]["read"])


def test_hamis_plugin_finds_the_pod_by_the_lock():
    owner, text = LockHolder("team", "job"), VECTORS["lock"]["text"]
    assert lock_text(PLUGIN_LOCK, AT_S, owner) == text
    assert VECTORS["lock"]["read"] == [AT_S, "team", "job"]
    assert read_lock(PLUGIN_LOCK, text, AT_S + 1) == HeldLock(owner, 1)


def test_a_node_takes_pods_of_both_schedulers_while_kubelet_lists_its_gpus():
    """HAMi's scheduler asks by ``hami.io/node-handshake``; a minute later kubelet's list is its answer, as it is
    Purser's at once. It asks nobody again who does not answer, and takes silence for no loss."""
    for vector in VECTORS["health"]:
        asked_long_ago = vector["handshake"] == "Requesting 2 h ago"
        assert vector["healthy"] == (vector["allocatable"] > 0 or not asked_long_ago)
        assert vector["writes"] == ("" if vector["handshake"].startswith("Requesting") else "Requesting")
        first, _ = devices(read_gpus(VECTORS["of_hami"]), {GPU_RESOURCE: vector["allocatable"]})
        assert first.healthy == (vector["allocatable"] > 0)
