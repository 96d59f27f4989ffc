"""Labels in each outlet: there, kept there, and written only when something differs."""

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from tests.unit.agent.builders import NODE
from tests.unit.agent.conftest import eventually

from purser.agent.features import FeatureLabels, publishing
from purser.agent.features.outlets import NODE_FEATURES, FeatureFile, NodeLabels
from purser.agent.host.latest import Latest
from purser.agent.inventory.building import InventoryBasis
from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.agent.settings import AgentSettings, FeatureOutlet, FeatureSettings
from purser.agent.sharing import SharingConfig
from purser.core.names import DEFAULT_NAMESPACE
from purser.kube.backoff import Backoff
from purser.kube.informer import Informer
from purser.kube.resources import DAEMON_SETS, NODES, PODS, untyped_resource

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module")]

GPU, PRODUCT, STAMP = "nvidia.com/gpu", "nvidia.com/gpu.product", "nvidia.com/gfd.timestamp"
L4, T4 = (Gpu(index=0, name=name, memory_mib=1, compute_capability="8.9") for name in ("NVIDIA L4", "Tesla T4"))
OBJECT = f"nvidia-features-for-{NODE}"
POD = "agent-1"


class Node:
    """A node whose GPUs are known, and the agent's part that labels it."""

    def __init__(self, client, folder, facts):
        self.client, self.folder, self.facts = client, folder, facts
        self.info, self._scans = DriverInfo(version="550.54.14", cuda_version="12.4"), itertools.count()
        self.basis = Latest(None)
        self.scanned(L4)

    def scanned(self, *gpus, info=None):
        self.info = info or self.info
        self.basis.set(InventoryBasis(SharingConfig(), self.info, gpus, next(self._scans)))

    async def read_again(self, *gpus):
        """Scanned, and its facts are known."""
        told = len(self.facts)
        self.scanned(*gpus)
        await eventually(lambda: len(self.facts) > told)

    @contextlib.asynccontextmanager
    async def labelled(self, outlet, **features):
        settings = AgentSettings(
            node_name=NODE,
            host_root=self.folder,
            sysfs_root=self.folder / "sys",
            features=FeatureSettings(outlet=outlet, **{"has_timestamp": False, **features}),
        )
        nodes = Informer(self.client, NODES, field_selector=f"metadata.name={NODE}")
        running = FeatureLabels(settings, self.client, self.basis, nodes)
        tasks = [asyncio.create_task(each) for each in (nodes.run(), running.run())]
        try:
            yield running
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def labels(self):
        return (await self.client.get(NODES, NODE)).metadata.labels

    async def object(self):
        """None: there is none."""
        found = (await self.client.list(NODE_FEATURES.raw(), DEFAULT_NAMESPACE)).items
        return found[0] if found else None

    async def object_says(self, product):
        found = await self.object()
        return found is not None and found["spec"]["labels"].get(PRODUCT) == product


@pytest_asyncio.fixture(loop_scope="module")
async def node(client, tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "LABELS_WRITE_PAUSE_S", 0.02)
    await client.create(NODES, {"metadata": {"name": NODE, "labels": {"nvidia.com/gpu.deploy.driver": "true"}}})
    collect_facts, facts = publishing.collect_facts, []

    def noted(*args):
        facts.append(collect_facts(*args))
        return facts[-1]

    monkeypatch.setattr(publishing, "collect_facts", noted)
    yield Node(client, tmp_path, facts)
    await client.delete(NODES, NODE)


@contextlib.contextmanager
def writes(api):
    """Methods and paths of the writes that are made meanwhile."""
    made = []

    async def note(request):
        if request.method != "GET":
            made.append((request.method, request.path))

    api.intercept(note)
    try:
        yield made
    finally:
        api.intercept(None)


# --- a file


def read(path):
    return dict(line.split("=", 1) for line in path.read_text().splitlines()) if path.exists() else {}


async def test_a_file_for_node_feature_discovery(node):
    path = node.folder / "etc/kubernetes/node-feature-discovery/features.d/gfd"
    async with node.labelled(FeatureOutlet.FILE):
        await asyncio.sleep(0)
        path.parent.mkdir(parents=True)
        await eventually(lambda: read(path).get(PRODUCT) == "NVIDIA-L4")
        assert (path.stat().st_mode & 0o777, [each.name for each in path.parent.iterdir()]) == (0o644, ["gfd"])
        node.scanned(T4, T4)
        await eventually(lambda: read(path).get(f"{GPU}.count") == "2")
        path.unlink()
        await eventually(lambda: read(path).get(PRODUCT) == "Tesla-T4")
    assert not path.exists()


async def test_a_file_that_is_to_stay(node):
    async with node.labelled(FeatureOutlet.FILE, file=Path("/gfd"), keeps_file=True):
        await eventually(lambda: read(node.folder / "gfd"))
    assert read(node.folder / "gfd")[PRODUCT] == "NVIDIA-L4"


async def test_a_file_is_written_when_a_label_differs(tmp_path):
    outlet = FeatureFile(tmp_path / "gfd", is_kept=True)
    assert await outlet.put({"a": "1", "b": "", STAMP: "1"})
    assert (tmp_path / "gfd").read_text() == f"a=1\nb=\n{STAMP}=1\n"
    assert not await outlet.put({"a": "1", "b": "", STAMP: "2"})
    assert await outlet.put({"a": "2", "b": "", STAMP: "2"})
    assert await outlet.put({"a": "2", STAMP: "3"})
    assert await outlet.put({"a": "2"})
    (tmp_path / "gfd").write_bytes(b"\xff=\n\n=")
    assert await outlet.put({"a": "2"})
    outlet.leave()
    assert read(tmp_path / "gfd") == {"a": "2"}


# --- a NodeFeature object


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node_features(client):
    """node-feature-discovery's kind, as far as a server goes by it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "nodefeatures", "singular": "nodefeature", "kind": "NodeFeature", "listKind": "NodeFeatureList"}
    kind = untyped_resource(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
    )
    spec = {"group": NODE_FEATURES.group, "scope": "Namespaced", "names": names, "versions": [version]}
    await client.create(kind, {"metadata": {"name": f"nodefeatures.{NODE_FEATURES.group}"}, "spec": spec})


@pytest_asyncio.fixture(loop_scope="module")
async def owner(client):
    """The DaemonSet of the agent's pod, as a reference to it says."""
    pods = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": pods}
    body = {"metadata": {"name": "purser-agent"}, "spec": spec}
    made = await client.create(DAEMON_SETS, body, DEFAULT_NAMESPACE)
    reference = {"kind": "DaemonSet", "name": "purser-agent", "uid": made["metadata"]["uid"]}
    reference |= {"apiVersion": "apps/v1", "controller": True}
    pod = {"metadata": {"name": POD, "ownerReferences": [reference]}, "spec": pods["spec"]}
    await client.create(PODS, pod, DEFAULT_NAMESPACE)
    yield reference
    await client.delete(DAEMON_SETS, "purser-agent", DEFAULT_NAMESPACE)


async def test_a_node_feature_object(node, node_features, owner, api):
    async with node.labelled(FeatureOutlet.NODE_FEATURE, pod_name=POD, has_timestamp=True):
        await eventually(lambda: node.object_says("NVIDIA-L4"))
    found = await node.object()
    assert found["metadata"]["name"] == OBJECT
    assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE}
    assert found["metadata"]["ownerReferences"] == [owner]
    assert found["spec"]["features"] == {}
    first = found["spec"]["labels"].pop(STAMP)
    assert first.isdecimal()
    await node.client.patch_merge(NODE_FEATURES, OBJECT, {"spec": {"labels": {STAMP: "1"}}}, DEFAULT_NAMESPACE)
    with writes(api) as made:
        async with node.labelled(FeatureOutlet.NODE_FEATURE, pod_name=POD, has_timestamp=True) as again:
            await eventually(lambda: again._outlet._objects.health.synced)
            await node.read_again(L4)
            node.scanned(T4)
            await eventually(lambda: node.object_says("Tesla-T4"))
    assert len(made) == 1
    await node.client.delete(NODE_FEATURES, OBJECT, DEFAULT_NAMESPACE)


async def test_an_object_is_kept_as_it_should_be(node, node_features):
    """NVIDIA's is taken over; what somebody changes is put right; what is not found any more goes."""
    theirs = {"metadata": {"name": OBJECT}, "spec": {"features": {"flags": {}}, "labels": {PRODUCT: "old", "x": "y"}}}
    await node.client.create(NODE_FEATURES, theirs, DEFAULT_NAMESPACE)
    async with node.labelled(FeatureOutlet.NODE_FEATURE):
        await eventually(lambda: node.object_says("NVIDIA-L4"))
        found = await node.object()
        assert "x" not in found["spec"]["labels"]
        assert found["spec"]["features"] == {"flags": {}}
        assert found["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": NODE}
        patch = {"spec": {"labels": {PRODUCT: "another"}}}
        await node.client.patch_merge(NODE_FEATURES, OBJECT, patch, DEFAULT_NAMESPACE)
        await eventually(lambda: node.object_says("NVIDIA-L4"))
        node.scanned(L4, T4, T4)
        await eventually(lambda: node.object_says("Tesla-T4"))
        await node.client.delete(NODE_FEATURES, OBJECT, DEFAULT_NAMESPACE)
        await eventually(lambda: node.object_says("Tesla-T4"))
    await node.client.delete(NODE_FEATURES, OBJECT, DEFAULT_NAMESPACE)


# --- the node


async def has(node, key, value):
    return (await node.labels()).get(key) == value


async def test_labels_on_the_node(node, api):
    stale = {"nvidia.com/mig-1g.5gb.count": "7", "nvidia.com/mig.config": "all-1g.5gb", "gpu.purser.dev/Old": "1"}
    await node.client.patch_merge(NODES, NODE, {"metadata": {"labels": stale}})
    async with node.labelled(FeatureOutlet.NODE_LABELS):
        await eventually(lambda: has(node, PRODUCT, "NVIDIA-L4"))
        labels = await node.labels()
        assert stale.keys() & labels.keys() == {"nvidia.com/mig.config"}
        assert labels["nvidia.com/gpu.deploy.driver"] == "true"
        await node.client.patch_merge(NODES, NODE, {"metadata": {"labels": {PRODUCT: None}}})
        await eventually(lambda: has(node, PRODUCT, "NVIDIA-L4"))
        with writes(api) as made:
            await node.read_again(L4)
            node.scanned(info=DriverInfo(absent="it is being replaced"))
            await has_taken_it()
            node.scanned(T4, info=DriverInfo(version="550.54.14", cuda_version="12.4"))
            await eventually(lambda: has(node, PRODUCT, "Tesla-T4"))
        assert len(made) == 1


async def has_taken_it():
    """Return when what was scanned is what is worked on: a turn of the loop later."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_written_is_not_written_again_while_the_watch_is_behind(node, api):
    nodes = Informer(node.client, NODES, field_selector=f"metadata.name={NODE}")
    nodes.store.put(await node.client.get(NODES, NODE))  # and no change comes later
    outlet = NodeLabels(node.client, NODE, nodes)
    with writes(api) as made:
        assert [await outlet.put({PRODUCT: each}) for each in ("a", "a", "b", "b")] == [True, False, True, False]
    assert len(made) == 2


async def test_a_write_that_is_refused_is_tried_again(node, api, monkeypatch):
    monkeypatch.setattr(publishing, "Backoff", lambda **_: Backoff(initial_s=0.01, cap_s=0.01))
    refused = []

    async def refuse(request):
        if request.method == "PATCH" and len(refused) < 2:
            refused.append(request.path)
            return web.Response(status=403, text="no label")
        return None

    api.intercept(refuse)
    try:
        async with node.labelled(FeatureOutlet.NODE_LABELS):
            await eventually(lambda: has(node, PRODUCT, "NVIDIA-L4"))
    finally:
        api.intercept(None)
    assert len(refused) == 2


# --- the whole agent


async def test_the_agent_labels_its_node(world, kubelet):
    features = FeatureSettings(outlet=FeatureOutlet.NODE_LABELS)
    async with world.agent(features=features, sysfs_root=world.driver.sysfs_root) as agent:
        await eventually(agent.ready)
        labels = await eventually(lambda: labelled(world))
    assert (labels[PRODUCT], labels[f"{GPU}.count"], labels["gpu.purser.dev/Tesla-T4"]) == ("Tesla-T4", "4", "4")
    assert (labels[f"{GPU}.mode"], labels["nvidia.com/vgpu.present"]) == ("compute", "false")


async def labelled(world):
    found = (await world.client.get(NODES, NODE)).metadata.labels
    return found if PRODUCT in found else None
