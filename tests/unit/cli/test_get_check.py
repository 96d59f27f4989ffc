"""`purser get grants --check` against an API server: what is left, and an exit code for scripts."""

import json

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.cli.typed import beside
from tests.unit.kube.servers import api_server

from purser.cli.output import FAILED
from purser.core.grant.disputes import HeldPod, HeldReason, NodeDisputes, text_of
from purser.core.grant.signing import sign
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory, PartitionedGpu
from purser.core.names import DISPUTES_ANNOTATION, INVENTORY_ANNOTATION
from purser.kube.resources import NODES, PODS


async def get(kubeconfig, *words):
    return await beside("get", *words, f"--kubeconfig={kubeconfig}")


async def bound_pod(client, name, memory=None):
    limits = {"nvidia.com/gpu": "1"}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
    pod = await client.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("GPU-1", memory or 0, 0),))
    grant = Grant(pod.metadata.uid, "default", name, "n1", (part,))
    signed = sign(grant, Ed25519PrivateKey.generate()) if memory else {}
    await client.bind("default", name, pod.metadata.uid, "n1", signed)
    await client.patch_merge(PODS, name, {"status": {"phase": "Running"}}, "default", subresource="status")
    return pod


async def test_what_differs_is_printed_until_all_ledgers_agree(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig) as (_, client):
        inventory = NodeInventory("n1", (Device("GPU-1", 0, "T4", 1000, slots=4),))
        annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(inventory).decode()}
        await client.create(NODES, {"metadata": {"name": "n1", "annotations": annotations}})
        await bound_pod(client, "right", 600)
        assert await get(kubeconfig, "grants", "--check") == (0, "", "All records agree.\n")
        of_one = await get(kubeconfig, "grants", "--check", "-n", "default")
        assert of_one == (0, "", "All records of namespace default agree.\n")
        old = await bound_pod(client, "old")
        held = HeldPod("default", "old", old.metadata.uid, HeldReason.NEVER_GRANTED, uuids=("GPU-1",))
        told = {DISPUTES_ANNOTATION: text_of(NodeDisputes("n1", (held,)))}
        await client.patch_merge(NODES, "n1", {"metadata": {"annotations": told}})
        await bound_pod(client, "unheard-of")
        await bound_pod(client, "late", 600)
        code, out, err = await get(kubeconfig, "grants", "--check", "-o", "json")
        assert (code, err) == (FAILED, "")
        found = json.loads(out)
        assert [(each["kind"], each["pod"]) for each in found] == [
            ("granted-twice", ""),
            ("never-granted", "default/old"),
            ("not-reported", "default/unheard-of"),
        ]
        assert all(each["settled_by"] for each in found)
        code, out, err = await get(kubeconfig, "grants", "--check", "-n", "other", "-o", "wide")
        assert (code, "default/late, default/right" in out, "default/old" in out) == (FAILED, True, False)


@pytest.mark.gate
async def test_tables_count_what_agents_report_of_pods_without_a_grant(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig) as (_, client):
        cards = tuple(Device(f"GPU-{number}", number - 1, "T4", 1000, slots=4) for number in (1, 2, 3))
        cut = (PartitionedGpu("GPU-9", "A100", 40960, index=3),)
        defaced, old = await bound_pod(client, "defaced"), await bound_pod(client, "old")
        part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("GPU-1", 600, 0),))
        held = (
            HeldPod("default", "defaced", defaced.metadata.uid, HeldReason.GRANT_MISSING, (part,)),
            HeldPod("default", "old", old.metadata.uid, HeldReason.NEVER_GRANTED, uuids=("GPU-2",)),
        )
        annotations = {
            INVENTORY_ANNOTATION: msgspec.json.encode(NodeInventory("n1", cards, cut)).decode(),
            DISPUTES_ANNOTATION: text_of(NodeDisputes("n1", held)),
        }
        await client.create(NODES, {"metadata": {"name": "n1", "annotations": annotations}})
        code, out, _ = await get(kubeconfig, "gpus", "-o", "json")
        assert code == 0
        found = [(each["held"]["memory_mib"], each["disputed"]) for each in json.loads(out)]
        assert found == [(600, ""), (0, "pod default/old holds the GPU without a valid grant"), (0, ""), (0, "")]
        _, out, _ = await get(kubeconfig, "gpus")
        assert [line.split()[3] for line in out.splitlines()[1:]] == ["Healthy", "Disputed", "Healthy", "Unhealthy"]
        _, out, _ = await get(kubeconfig, "gpus", "-o", "wide")
        assert "MIG mode is enabled, but the node lists no MIG devices for this GPU" in out.splitlines()[-1]
        _, out, err = await get(kubeconfig, "grants", "-o", "json")
        assert [(each["pod"], each["state"]) for each in json.loads(out)] == [("defaced", "running")]
        assert "purser get grants --check" in err


async def test_devices_of_other_vendors_are_listed_and_who_placed_pods_there_is_not_judged(tmp_path):
    kubeconfig, dcu = tmp_path / "kubeconfig", "hygon.com/dcunum"
    async with api_server(kubeconfig) as (_, client):
        annotations = {"hami.io/node-dcu-register": "DCU-a,4,32768,100,Z100L,0,true:"}
        await client.create(NODES, {"metadata": {"name": "d1", "annotations": annotations}})
        listed = {"capacity": {dcu: "4"}, "allocatable": {dcu: "4"}}
        await client.patch_merge(NODES, "d1", {"status": listed}, subresource="status")
        containers = [{"name": "c", "image": "i", "resources": {"limits": {dcu: "1"}}}]
        pod = await client.create(
            PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers}}
        )
        await client.bind("default", "p", pod.metadata.uid, "d1", {})
        await client.patch_merge(PODS, "p", {"status": {"phase": "Running"}}, "default", subresource="status")
        assert await get(kubeconfig, "grants", "--check") == (0, "", "All records agree.\n")
        _, out, _ = await get(kubeconfig, "gpus", "-o", "wide")
        assert {"d1", "Z100L", "DCU-a", dcu, "Healthy"} < set(out.split())
