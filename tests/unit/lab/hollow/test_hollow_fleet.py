"""Hollow kubelets on the lab's API server: what they write of pods and nodes, and how people break them."""

import asyncio

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.kube.servers import api_server
from tests.waiting import eventually

from purser.adapters.nodes import inventory_of
from purser.core.device.pci import product_of_device
from purser.core.fleet import Fleet
from purser.core.grant.signing import sign
from purser.core.mig import MigPlacement
from purser.core.model import ContainerKind, ContainerRequest, DeviceRequest, PodRequest
from purser.core.names import INVENTORY_ANNOTATION, MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION, NODE_FACTS_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.facts import decode_facts
from purser.core.node.mig_messages import MigRequest, decode_result
from purser.core.placement import Evaluator
from purser.core.placement.granted import to_grant
from purser.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, NODES, PODS
from purser.lab.hollow import HollowFleet, HollowNodes, manifests
from purser.lab.hollow.node import (
    BOOT_ANNOTATION,
    FAILING_PODS_ANNOTATION,
    MIG_ANNOTATION,
    NOT_READY_ANNOTATION,
    device_id,
    split_os,
)


@pytest.fixture
async def client(tmp_path):
    async with api_server(tmp_path / "k", tls=False) as (_, client):
        await client.create(NAMESPACES, {"metadata": {"name": "gpu"}})
        for node in manifests(HollowNodes(name="n", gpus=2, product="NVIDIA-A100-SXM4-80GB")):
            await client.create(NODES, node)
        task = asyncio.create_task(HollowFleet(client, start_s=0, stop_s=0, renews_leases=True).run())
        yield client
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def start(client, operand, image="image:1", on="n-0", **more):
    labels = {"purser.dev/operand": operand}
    spec = {"nodeName": on, "containers": [{"name": "main", "image": image}], **more}
    await client.create(PODS.raw(), {"metadata": {"name": operand, "labels": labels}, "spec": spec}, "gpu")


async def annotate(client, key, value):
    await client.patch_merge(NODES, "n-0", {"metadata": {"annotations": {key: value}}})


async def pod(client, name):
    return await client.get(PODS.raw(), name, "gpu")


async def node(client):
    return await client.get(NODES.raw(), "n-0")


def ready(obj):
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


async def is_ready(client, name, wanted="True"):
    async def probe():
        found = await pod(client, name)
        return found if ready(found) == wanted else None

    return await eventually(probe)


async def test_a_pod_runs_and_ends(client):
    await start(client, "driver")
    found = await is_ready(client, "driver")
    assert found["status"]["phase"] == "Running"
    await client.delete(PODS, "driver", "gpu")

    async def gone():
        return not (await client.list(PODS, "gpu")).items

    await eventually(gone)


async def test_a_pod_of_the_named_image_crashes_until_the_annotation_goes(client):
    await annotate(client, FAILING_PODS_ANNOTATION, "driver=image:2, other")
    await start(client, "driver", "image:2")
    await start(client, "device-plugin", "image:2")
    found = await is_ready(client, "driver", "False")
    assert found["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert found["status"]["containerStatuses"][0]["restartCount"] > 10
    await is_ready(client, "device-plugin")
    await annotate(client, FAILING_PODS_ANNOTATION, None)
    await is_ready(client, "driver")


async def test_gpus_are_offered_while_the_device_plugin_runs(client):
    await start(client, "device-plugin")
    await eventually(lambda: offers(client, "20"))
    await eventually(lambda: is_described(client))
    await client.delete(PODS, "device-plugin", "gpu")
    await eventually(lambda: offers(client, "0"))


async def test_a_node_that_is_away_does_nothing_and_says_so(client):
    await start(client, "driver")
    await is_ready(client, "driver")
    await annotate(client, NOT_READY_ANNOTATION, "true")

    async def away():
        found = await node(client)
        return ready(found) == "Unknown" and found["spec"].get("taints")

    await eventually(away)
    await client.delete(PODS, "driver", "gpu")
    for other in manifests(HollowNodes(name="other")):
        await client.create(NODES, other)
    await start(client, "gfd", on="other-0")
    await is_ready(client, "gfd")  # its turn comes after the driver's
    assert (await pod(client, "driver"))["metadata"]["deletionTimestamp"]
    await annotate(client, NOT_READY_ANNOTATION, None)

    async def back():
        found = await node(client)
        left = [each.metadata.name for each in (await client.list(PODS, "gpu")).items]
        return ready(found) == "True" and not found["spec"].get("taints") and left == ["gfd"]

    await eventually(back)


async def renewed(client):
    found = await client.list(LEASES, "kube-node-lease")
    return {each.metadata.name: each.spec.renew_time for each in found.items}


async def test_a_lease_says_that_the_node_lives_and_at_once_when_it_is_back(client):
    first = await eventually(lambda: renewed(client))
    assert list(first) == ["n-0"]
    await annotate(client, NOT_READY_ANNOTATION, "true")
    await eventually(lambda: is_state(client, "Unknown"))
    assert await renewed(client) == first
    await annotate(client, NOT_READY_ANNOTATION, None)
    await eventually(lambda: is_state(client, "True"))
    assert (await renewed(client))["n-0"] > first["n-0"]


async def is_state(client, wanted):
    return ready(await node(client)) == wanted


async def test_a_pod_that_others_call_not_ready_is_ready_again(client):
    await start(client, "driver")
    found = await is_ready(client, "driver")
    lost = [{**each, "status": "False"} for each in found["status"]["conditions"] if each["type"] == "Ready"]
    version = (
        await client.patch_merge(PODS.raw(), "driver", {"status": {"conditions": lost}}, "gpu", subresource="status")
    )["metadata"]["resourceVersion"]
    found = await is_ready(client, "driver")
    assert found["metadata"]["resourceVersion"] != version


async def test_a_reboot_restarts_every_container(client):
    await start(client, "driver")
    await is_ready(client, "driver")
    await annotate(client, BOOT_ANNOTATION, "second")

    async def restarted():
        found = await pod(client, "driver")
        return ready(found) == "True" and found["status"]["containerStatuses"][0]["restartCount"] == 1

    async def booted():
        return (await node(client))["status"]["nodeInfo"]["bootID"] == "second"

    await eventually(restarted)
    await eventually(booted)


async def test_discovery_writes_what_the_node_is(client):
    await start(client, "gpu-discovery")

    async def facts():
        return decode_facts((await node(client))["metadata"]["annotations"].get(NODE_FACTS_ANNOTATION))

    found = await eventually(facts)
    assert (found.os_id, found.os_version) == ("ubuntu", "22.04")
    assert [product_of_device(each.device) for each in found.gpus] == ["NVIDIA-A100-SXM4-80GB"] * 2


async def test_the_model_is_a_label_only_once_feature_discovery_runs(client):
    async def labelled():
        return (await node(client))["metadata"]["labels"].get("nvidia.com/gpu.product")

    await start(client, "device-plugin")
    await eventually(lambda: offers(client, "20"))
    assert await labelled() is None
    await start(client, "gpu-feature-discovery")
    assert await eventually(labelled) == "NVIDIA-A100-SXM4-80GB"


async def test_without_node_feature_discovery_nothing_labels_the_model(client):
    """Feature discovery leaves a file that nobody reads."""
    nfd = dict.fromkeys(label for label in (await node(client))["metadata"]["labels"] if label.startswith("feature."))
    await client.patch_merge(NODES, "n-0", {"metadata": {"labels": nfd}})
    await start(client, "gpu-feature-discovery")
    await is_ready(client, "gpu-feature-discovery")
    await start(client, "device-plugin")  # of which something is written in the same write, or a later one
    await eventually(lambda: offers(client, "20"))
    await eventually(lambda: is_described(client))
    assert "nvidia.com/gpu.product" not in (await node(client))["metadata"]["labels"]


async def is_described(client):
    return INVENTORY_ANNOTATION in (await node(client))["metadata"]["annotations"]


async def offers(client, gpus):
    return (await node(client))["status"]["allocatable"].get("nvidia.com/gpu", "0") == gpus


async def answered(client, request):
    await annotate(client, MIG_WANTED_ANNOTATION, encode(request))

    async def probe():
        found = decode_result((await node(client))["metadata"]["annotations"].get(MIG_RESULT_ANNOTATION))
        return found if found is not None and found.attempt == request.attempt else None

    return await eventually(probe)


async def test_the_mig_worker_answers_as_the_real_one_does(client):
    await start(client, "mig-manager")
    assert (await answered(client, MigRequest("all-1g.10gb", "1", check_only=True))).differs
    assert "layout nonsense does not exist" in (await answered(client, MigRequest("nonsense", "2"))).error
    assert not (await answered(client, MigRequest("all-1g.10gb", "3"))).error
    assert not (await answered(client, MigRequest("all-1g.10gb", "4", check_only=True))).differs
    await annotate(client, MIG_ANNOTATION, "refusing")
    assert "in use by another client" in (await answered(client, MigRequest("all-disabled", "5"))).error


async def test_the_mig_worker_goes_by_the_config_map_that_its_policy_names(client):
    async def write(name, data):
        await client.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "gpu"}, "data": data})

    own = "version: v1\nmig-configs: {night: [{devices: all, mig-enabled: false}]}\n"
    await start(client, "mig-manager", volumes=[{"name": "layouts", "configMap": {"name": "mine"}}])
    waits = asyncio.create_task(answered(client, MigRequest("night", "1")))
    await write("mine", {"config.yaml": own})  # a pod starts once its volume is there
    assert not (await waits).error
    assert "layout all-1g.10gb does not exist" in (await answered(client, MigRequest("all-1g.10gb", "2"))).error
    patch = {"data": {"config.yaml": own.replace("night", "day")}}
    await client.patch_merge(CONFIG_MAPS, "mine", patch, "gpu")
    assert not (await answered(client, MigRequest("day", "3"))).error
    await client.patch_merge(CONFIG_MAPS, "mine", {"data": {"config.yaml": None, "else.yaml": own}}, "gpu")
    assert "cannot read the layouts" in (await answered(client, MigRequest("day", "4"))).error


@pytest.mark.parametrize(("product", "device"), [("", "2330"), ("NVIDIA-B200", "2901"), ("Nobody-Knows-It", "ffff")])
def test_a_model_has_the_device_id_that_real_gpus_have(product, device):
    assert device_id(product) == device


@pytest.mark.parametrize(
    ("pretty", "parts"),
    [
        ("Ubuntu 22.04.4 LTS", ("ubuntu", "22.04")),
        ("Red Hat Enterprise Linux 9.4 (Plow)", ("rhel", "9.4")),
        ("Flatcar", ("flatcar", "")),
        ("", ("", "")),
    ],
)
def test_the_operating_system_as_discovery_would_name_it(pretty, parts):
    assert split_os(pretty) == parts


async def test_gpu_instances_are_granted_on_nodes_that_cut_gpus_on_demand(client):
    """What the node lists goes through the scheduler's functions, and a pod with the grant runs."""
    for each in manifests(HollowNodes(name="m", gpus=1, product="NVIDIA-A100-SXM4-40GB", mig_strategy="on-demand")):
        await client.create(NODES, each)
    await start(client, "device-plugin", on="m-0")

    async def described():
        found = await client.get(NODES, "m-0")
        return found if INVENTORY_ANNOTATION in found.metadata.annotations and offered(found)[0] == "7" else None

    def offered(found):
        of_devices = ("nvidia.com/gpu", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb.me")
        return [str(found.status.allocatable.get(name)) for name in of_devices]

    found = await eventually(described)
    assert offered(found) == ["7", "2", "1"]
    fleet = Fleet()
    fleet.set_inventory(inventory := inventory_of(found))
    asked = DeviceRequest(2, memory_percent=100, cores_percent=100, resource="nvidia.com/mig-3g.20gb")
    spec = {"containers": [{"name": "c", "image": "i"}]}
    made = await client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "gpu")
    request = PodRequest(made.metadata.uid, "gpu", "p", (ContainerRequest("c", ContainerKind.APP, asked),))
    grant = to_grant(Evaluator(fleet).place("m-0", request), request, inventory)
    assert {share.mig for share in grant.containers[0].shares} == {MigPlacement("3g.20gb", at) for at in (0, 4)}
    await client.bind("gpu", "p", made.metadata.uid, "m-0", sign(grant, Ed25519PrivateKey.generate()))
    await is_ready(client, "p")
    await client.delete(PODS, "device-plugin", "gpu")

    async def withdrawn():
        return offered(await client.get(NODES, "m-0")) == ["0", "0", "0"]

    await eventually(withdrawn)
