"""One node with everything real but the hardware and kubelet: API server, client, driver library, agent."""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

import aiohttp
import msgspec
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.unit.agent.builders import NODE
from tests.unit.agent.emulated_kubelet import kubelet_in
from tests.waiting import eventually

from purser.agent.reporting.publisher import WRITE_PAUSE_S
from purser.agent.run import run
from purser.agent.settings import AgentSettings
from purser.core.grant.disputes import NodeDisputes
from purser.core.grant.signing import sign
from purser.core.model import ContainerKind, Grant
from purser.core.names import DEFAULT_NAMESPACE, DISPUTES_ANNOTATION, GRANT_KEY_CONFIGMAP, INVENTORY_ANNOTATION
from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.kube.config import ClusterConfig
from purser.kube.errors import NotFoundError
from purser.kube.resources import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.lab.driver import SimulatedDriver

DEADLINE_S = 60


def uuids_of(ids):
    return sorted(device_id.partition("::")[0] for device_id in ids)


def health_of(kubelet, uuid):
    """What kubelet knows of the card's slots."""
    return {device.health for name, device in kubelet.devices.items() if name.startswith(uuid)}


@contextlib.contextmanager
def node_writes(api, repeats=True):
    """The paths of the node writes that are made meanwhile.

    ``repeats``: also of those that say what the one before said, as the agent does on a machine too busy for it to hear
    of its own write within `WRITE_PAUSE_S`.
    """
    written, last = [], {}

    async def note(request):
        if request.method == "PATCH" and request.path.startswith("/api/v1/nodes/"):
            body = await request.read()
            if repeats or last.get(request.path) != body:
                written.append(request.path)
            last[request.path] = body

    api.intercept(note)
    try:
        yield written
    finally:
        api.intercept(None)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    """An agent's stop waits for the thread that listens to the driver; a successor's first inventory for kubelet; the
    write of an agent that writes too often for longer each time, so that it would not be noticed."""
    monkeypatch.setattr("purser.agent.health.xids.EVENT_WAIT_MS", 20)
    monkeypatch.setattr("purser.agent.reporting.publisher.KUBELET_HEAD_START_S", 0.1)
    monkeypatch.setattr("purser.agent.reporting.publisher.MAX_WRITE_PAUSE_S", WRITE_PAUSE_S)


def hold_sleeps(monkeypatch, seconds):
    """Events: that somebody sleeps for exactly so long by the machine's clock, and that such sleeps are over."""
    begun, over, sleep = asyncio.Event(), asyncio.Event(), SystemClock.sleep

    async def held(clock, asked):
        if asked != seconds:
            await sleep(clock, asked)
            return
        begun.set()
        await over.wait()

    monkeypatch.setattr(SystemClock, "sleep", held)
    return begun, over


@contextlib.contextmanager
def short_folder():
    """A unix socket's path has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="pa"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def folder():
    with short_folder() as path:
        yield path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api():
    """One for all tests of a module: it takes longer to start and stop than a test runs."""
    async with ApiServer(tls=False) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(api, tmp_path_factory):
    path = tmp_path_factory.mktemp("api") / "kubeconfig"
    api.write_kubeconfig(path)
    async with Client(ClusterConfig.load(path)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def kubelet(folder):
    async with kubelet_in(folder) as kubelet:
        yield kubelet


@pytest.fixture(scope="module")
def shared_folder():
    """A module's ``folder``, where all of its tests share one node."""
    with short_folder() as path:
        yield path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_kubelet(folder):
    """The same for ``kubelet``."""
    async with kubelet_in(folder) as kubelet:
        yield kubelet


@pytest.fixture
def driver(folder):
    return SimulatedDriver.create(folder / "driver", NODE, "t4-4")


class World:
    """The cluster side, and an agent that can be started and stopped."""

    def __init__(self, folder, client, driver):
        self.folder, self.client, self.driver = folder, client, driver
        self.key = Ed25519PrivateKey.generate()
        self.uuids = driver.uuids
        self.settings = {
            "device_plugin_dir": folder / "device-plugins",
            "pod_resources_socket": folder / "pod-resources" / "kubelet.sock",
            "state_dir": folder / "state",
            "host_root": folder / "host",
            "metrics_address": "127.0.0.1",
            "metrics_port": 0,
            "slots": 4,
            "probe_interval_s": 0.3,
            "telemetry_interval_s": 0.3,
            "recovery_s": 0.1,
            "reopen_interval_s": 0.3,
            "resolve_timeout_s": 0.5,
            "retry_initial_s": 0.05,
            "retry_cap_s": 0.2,
            "in_flight_s": 0.0,
        }

    async def prepare(self):
        await self.client.create(NODES, {"metadata": {"name": NODE}})
        await self.publish_keys(self.key)

    async def clean_up(self):
        """Nothing of this test is there for the next one."""
        await self.remove_pods()
        await self.client.delete(NODES, NODE)
        await self.client.delete(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, DEFAULT_NAMESPACE)

    async def remove_pods(self):
        """And what was reported of them."""
        for resource in (PODS, EVENTS):
            for found in (await self.client.list(resource)).items:
                meta = found.metadata
                with contextlib.suppress(NotFoundError):
                    await self.client.delete(resource, meta.name, meta.namespace, grace_period_seconds=0)

    async def publish_keys(self, *keys):
        pems = [key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode() for key in keys]
        with contextlib.suppress(NotFoundError):
            await self.client.delete(CONFIG_MAPS, GRANT_KEY_CONFIGMAP, DEFAULT_NAMESPACE)
        body = {"metadata": {"name": GRANT_KEY_CONFIGMAP}, "data": {"keys": "".join(pems)}}
        await self.client.create(CONFIG_MAPS, body, DEFAULT_NAMESPACE)

    @contextlib.asynccontextmanager
    async def agent(self, driver=None, find_driver=None, **settings):
        stop, reload, port = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
        opened = driver or self.driver.open()
        task = asyncio.create_task(
            run(
                AgentSettings(node_name=NODE, **{**self.settings, **settings}),
                self.client,
                opened,
                stop,
                reload=reload,
                find_driver=find_driver or self.driver.open,
                on_port=port.set_result,
            )
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                running = RunningAgent(await port, reload, task)
            yield running
        finally:
            stop.set()
            await asyncio.wait_for(task, DEADLINE_S)
            opened.close()

    async def pod(
        self,
        name,
        *parts,
        counts=None,
        bound=True,
        key=None,
        annotations=None,
        plain=(),
        resource="nvidia.com/gpu",
        required=False,
        labels=None,
        scheduler="default-scheduler",
        **container,
    ):
        """Create a pod with this grant and bind it here; ``counts`` differ from the grant's where given."""
        counts = counts if counts is not None else {part.container: len(part.shares) for part in parts}
        init = [part.container for part in parts if part.kind is not ContainerKind.APP]

        def spec(name):
            limits = {resource: str(counts[name])} if counts.get(name) else {}
            return {"name": name, "image": "x", "resources": {"limits": limits}, **container}

        body = {
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {
                "schedulerName": scheduler,
                "initContainers": [spec(name) for name in init],
                "containers": [spec(name) for name in (*(n for n in counts if n not in init), *plain)],
            },
        }
        pod = await self.client.create(PODS, body, "default")
        grant = Grant(pod.metadata.uid, "default", name, NODE, parts, required)
        if bound:
            signed = sign(grant, key or self.key) if parts else {}
            await self.client.bind("default", name, pod.metadata.uid, NODE, signed)
        return grant

    async def set_phase(self, name, phase):
        await self.client.patch_merge(PODS, name, {"status": {"phase": phase}}, "default", subresource="status")

    async def delete_pod(self, name):
        await self.client.delete(PODS, name, "default", grace_period_seconds=0)

    async def inventory_text(self):
        node = await self.client.get(NODES, NODE)
        return node.metadata.annotations.get(INVENTORY_ANNOTATION)

    async def published_again(self):
        """Return once the agent has published again, with whatever it knew by now: two writes, the first the test's."""
        gone = {"metadata": {"annotations": {INVENTORY_ANNOTATION: None}}}
        await self.client.patch_merge(NODES, NODE, gone)
        await eventually(self.inventory_text)

    async def disputes(self):
        """What the agent tells of them; None where it tells nothing."""
        text = (await self.client.get(NODES, NODE)).metadata.annotations.get(DISPUTES_ANNOTATION)
        return None if text is None else msgspec.json.decode(text, type=NodeDisputes)

    async def events(self, name):
        listing = await self.client.list(EVENTS)
        return [(e.reason, e.message) for e in listing.items if e.involved_object.name == name]


class RunningAgent:
    def __init__(self, port, reload, task):
        self.port, self.reload, self.task = port, reload, task

    async def get(self, path):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return response.status, await response.text()

    async def ready(self):
        status, _ = await self.get("/readyz")
        return status == 200

    async def metric(self, name, **labels):
        _, text = await self.get("/metrics")
        for line in text.splitlines():
            head, _, value = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{k}="{v}"' in head for k, v in labels.items()):
                return float(value)
        return None


@pytest_asyncio.fixture(loop_scope="module")
async def world(folder, client, driver):
    world = World(folder, client, driver)
    await world.prepare()
    yield world
    await world.clean_up()
