"""A bad object takes no turn of another: what cannot be read, or a part of Purser fails on, is reported and passed."""

import asyncio
import os
import subprocess
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from purser.agent.allocation.arbiter import Arbiter
from purser.agent.host.hostfiles import remove_dir
from purser.agent.kubelet.pod_resources import ListedPod
from purser.agent.kubelet.registration import FAILED, FileIdentity, PluginRegistration
from purser.agent.mig import worker as mig_worker
from purser.agent.nvml.calls import DeviceCalls
from purser.agent.settings import AgentSettings
from purser.core.health.signs import FaultKind
from purser.core.kubelet.versions import behaviour
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, GrantState
from purser.core.names import (
    GRANT_ANNOTATION,
    GRANT_SIGNATURE_ANNOTATION,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
    NODE_FACTS_ANNOTATION,
)
from purser.core.node.mig_messages import MigRequest
from purser.kube import failures as failures_module
from purser.kube.clock import SystemClock
from purser.kube.errors import ApiUnavailableError
from purser.kube.failures import ObjectFailures
from purser.kube.informer import Informer
from purser.kube.objects import Node, ObjectMeta, Pod
from purser.kube.resources import PODS
from purser.lab.kubelet.endpoints import Endpoints, _Endpoint
from purser.lab.kubelet.node import NodeSettings
from purser.lab.kubelet.podworkers import PodWorkers
from purser.operator.observing import Observer
from purser.operator.policy.decoding import generation_of
from purser.scheduler.binding.double_grants import DoubleGrants
from purser.scheduler.cache import topologies as topologies_module
from purser.scheduler.missed_pods import MissedPods
from purser.scheduler.settings import UrlTarget, WebhookSettings
from purser.scheduler.webhook.registration import WebhookRegistration as Webhooks
from tests.security.odd import Odd, forever
from tests.unit.agent.builders import A, B
from tests.unit.agent.health.test_device_monitor import Driver, healthy, monitoring
from tests.unit.kube.servers import client_of, eventually, line, listing, pod, running
from tests.unit.kube.test_informer import Script, informer_of
from tests.unit.scheduler.extender_world import replica, server

pytestmark = pytest.mark.processes


@asynccontextmanager
async def world_of():
    async with server() as api, replica(api) as world:
        yield world


DEEP = '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"


class Said:
    """Events, as they are posted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, about, reason, message, type="Normal"):
        self.events.append((about.name, reason, message))

    @property
    def reasons(self) -> list[tuple[str, str]]:
        return [(name, reason) for name, reason, _ in self.events]


def reporting(client):
    registry, said = CollectorRegistry(), Said()
    client.failures.report_to(registry, said)
    return registry, said


def failures_of():
    failures, said = ObjectFailures(), Said()
    failures.report_to(CollectorRegistry(), said)
    return failures, said


class ManualTime:
    """Sleeps are over at once, and others get their turn."""

    def monotonic(self):
        return 0.0

    def now(self):
        return SystemClock().now()

    async def sleep(self, _):
        await asyncio.sleep(0.001)


@pytest.fixture
def quick(monkeypatch):
    """What failed is restarted at once."""
    monkeypatch.setattr(failures_module, "RESTART_S", 0.001)


async def test_an_object_that_cannot_be_read_stays_as_it_was_known_and_is_reported_once():
    odd = {"metadata": {"name": "odd", "namespace": "ns", "uid": "1", "resourceVersion": "7", "labels": 3}}
    known = pod("odd", 3)
    script = Script(
        listing([known, pod("a")], 5), (line("MODIFIED", odd), line("MODIFIED", odd)), listing([odd, pod("b", 8)], 9)
    )
    async with client_of(script.handle) as client:
        registry, said = reporting(client)
        informer = informer_of(client)
        async with running(informer.run()):
            await informer.synced()
            await informer.wait_for_relist()
            await eventually(lambda: "ns/b" in informer.store)
    assert sorted(informer.store) == ["ns/b", "ns/odd"]  # what it holds is not free because nobody can read it
    assert informer.store["ns/odd"].metadata.resource_version == "3"
    assert [(name, reason) for name, reason, _ in said.events] == [("odd", "Unreadable")]
    assert "metadata.labels" in said.events[0][2]
    assert b'purser_object_failures_total{resource="pods",stage="read"} ' in generate_latest(registry)


async def test_a_handler_that_fails_is_reported_with_its_object_and_counted():
    script = Script(listing([pod("a"), pod("b")], 5))
    heard: list[str] = []

    def handle(new):
        if new.metadata.name == "a":
            raise KeyError("x" * 100_000)
        heard.append(new.metadata.name)

    async with client_of(script.handle) as client:
        registry, said = reporting(client)
        informer: Informer = informer_of(client)
        informer.add_handler(on_add=handle)
        async with running(informer.run()):
            await informer.synced()
    assert heard == ["b"]
    ((name, reason, message),) = said.events
    assert (name, reason) == ("a", "HandlingFailed")
    assert "KeyError" in message and len(message) < 400
    assert b'purser_object_failures_total{resource="pods",stage="handle"} 1.0' in generate_latest(registry)


async def test_a_leader_takes_over_whatever_grants_were_put_on_pods_before():
    async with world_of() as world:
        _, said = reporting(world.client)
        await world.add_node("n1")
        hostile = {"deep": DEEP, "odd": '"\\ud800"', "long": "[" * 100_000, "infinite": '{"x":1e400,"pod_uid":1e400}'}
        for name, grant in hostile.items():
            bad = await world.add_pod(name, memory=None, annotations={GRANT_ANNOTATION: '{"not":"a grant"}'})
            await world.client.bind("default", name, bad.metadata.uid, "n1", {})
            await eventually(lambda bad=bad: bad.metadata.uid in world.cache.bound_grants.untrusted)
            changed = {GRANT_ANNOTATION: grant, GRANT_SIGNATURE_ANNOTATION: "é"}
            await world.client.patch_merge(PODS, name, {"metadata": {"annotations": changed}}, "default")
        await world.cache.wait_for_relist()
        assert len(world.cache.bound_grants.untrusted) == len(hostile)
        assert {name for name, reason, _ in said.events if reason == "UntrustedGrant"} == hostile.keys()
        honest = await world.add_pod("honest")
        assert await world.bind(honest, "n1") == ""


async def test_a_leader_takes_over_even_where_it_fails_on_a_pod(monkeypatch):
    async with world_of() as world:
        await world.add_node("n1")
        for name in ("one", "two"):
            bad = await world.add_pod(name, memory=None, annotations={GRANT_ANNOTATION: "no grant"})
            await world.client.bind("default", name, bad.metadata.uid, "n1", {})
            await eventually(lambda bad=bad: bad.metadata.uid in world.cache.bound_grants.untrusted)
        seen = []

        def fails(pod):
            seen.append(pod.metadata.name)
            raise RecursionError

        monkeypatch.setattr(world.cache, "put_pod", fails)
        await world.cache.wait_for_relist()
        assert sorted(seen) == ["one", "two"]


async def test_nodes_with_hostile_annotations_keep_no_pod_from_the_others():
    async with world_of() as world:
        _, said = reporting(world.client)
        await world.add_node("good")
        for number, text in enumerate((DEEP, "\N{DIGIT ONE}" * 9, '{"node":1e400}', '{"x":' + "9" * 5000 + "}")):
            annotations = {INVENTORY_ANNOTATION: text, KUBELET_ANNOTATION: text}
            body = {"metadata": {"name": f"bad{number}", "annotations": annotations}}
            await world.client.create(world.nodes.resource, body)
        await eventually(lambda: len(world.nodes.store) == 5)
        told = [(name, "kubelet" in message) for name, reason, message in said.events if reason == "Unreadable"]
        assert sorted(told) == [(f"bad{number}", of_kubelet) for number in range(4) for of_kubelet in (False, True)]
        honest = await world.add_pod("honest")
        result = await world.filter(honest, "good", "bad0", "bad1", "bad2", "bad3")
        assert result.node_names == ["good"]
        assert await world.bind(honest, "good") == ""


@pytest.fixture
def bottomless():
    """A folder nested deeper than Python's stack and the kernel's longest path go.

    Not in pytest's temporary folder, whose clean-up runs out of stack on what a run that failed leaves there.
    """
    root = Path(tempfile.mkdtemp())
    folder, before = root / "deep", os.open(".", os.O_RDONLY)
    folder.mkdir()
    try:
        os.chdir(folder)
        for _ in range(1100):
            Path("nested").mkdir()
            os.chdir("nested")
        os.fchdir(before)
        yield folder
    finally:
        os.fchdir(before)
        os.close(before)
        subprocess.run(["rm", "-rf", root], check=True)  # which keeps no stack


def test_a_container_that_nests_folders_without_end_does_not_stop_the_agent(bottomless, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (bottomless / "link").symlink_to(outside)
    (bottomless / "nested" / "link").symlink_to(outside)
    (bottomless / "nested" / "file").write_text("x")
    (outside / "file").write_text("kept")
    remove_dir(AgentSettings(node_name="n1", host_root=bottomless.parent), Path("/deep"))
    assert not bottomless.exists()
    assert (outside / "file").read_text() == "kept"


def grant(name: str, uuid: str) -> Grant:
    share = DeviceShare(uuid, 1000, 10)
    return Grant(f"u-{name}", "ns", name, "n1", (ContainerGrant("main", ContainerKind.APP, (share,)),))


@pytest.mark.parametrize(("card", "refused"), [("GPU-1", True), ("GPU-2", False)])
def test_a_pod_that_cannot_be_booked_stands_in_the_way_of_those_alone_that_want_its_gpus(card, refused):
    failures, said = failures_of()
    grants = {"ns/bad": grant("bad", "GPU-1"), "ns/good": grant("good", "GPU-3"), "ns/p": grant("p", card)}
    booked = []

    def adopt(listing, _):
        if listing[0].name == "bad":
            raise ZeroDivisionError
        booked.append(listing[0].name)
        return 1

    listing = [ListedPod("ns", name, {"main": (f"{uuid}::0",)}) for name, uuid in (("bad", "GPU-1"), ("good", "GPU-3"))]
    arbiter = Arbiter.__new__(Arbiter)
    arbiter._book = SimpleNamespace(adopt_listing=adopt)
    arbiter._pods = SimpleNamespace(pods=SimpleNamespace(failures=failures))
    found = SimpleNamespace(listing=listing, turn=SimpleNamespace(grant=grants["ns/p"]))
    if refused:
        with pytest.raises(ZeroDivisionError):
            arbiter._adopt(found, grants)
        return
    arbiter._adopt(found, grants)
    assert booked == ["good"]
    assert said.reasons == [("bad", "HandlingFailed")]


async def test_a_gpu_that_the_driver_fails_on_is_unhealthy_and_no_other(monkeypatch, quick):
    driver = Driver()
    scan, read, scans = driver.scan, driver.read, []

    def odd_read(uuid):
        return read(uuid) if uuid == B else {}[uuid]

    def odd_scan():
        scans.append(1)
        return scan() if len(scans) > 1 else [][0]

    monkeypatch.setattr(driver, "read", odd_read)
    monkeypatch.setattr(driver, "scan", odd_scan)
    async with monitoring(driver) as monitor:
        await eventually(lambda: healthy(monitor) == {B})
        assert "KeyError" in monitor.health[A].reason
        monkeypatch.setattr(driver, "read", read)
        await eventually(lambda: healthy(monitor) == {A, B})


def test_a_gpu_that_answers_with_rubbish_has_a_fault():
    nvml = SimpleNamespace(NVMLError=OSError, nvmlDeviceGetName=lambda handle: None)
    calls = DeviceCalls(nvml)
    assert calls.ask(lambda answer: answer.decode(), "nvmlDeviceGetName", 0) is None
    assert calls.fault.kind is FaultKind.UNKNOWN


async def test_while_the_registration_with_kubelet_fails_the_agent_is_not_ready(monkeypatch, tmp_path):
    settings = AgentSettings(node_name="n", device_plugin_dir=tmp_path)
    registration = PluginRegistration(settings, "nvidia.com/gpu", lambda resource: None, SimpleNamespace())
    monkeypatch.setattr("purser.agent.kubelet.registration.identity_of", lambda path: FileIdentity(1, 2, 3))
    monkeypatch.setattr(registration, "_serve_until_lost", Odd())
    with pytest.raises(ZeroDivisionError):
        await registration.run()
    assert (registration.connection.value.ready, registration.connection.value.problem) == (False, FAILED)


async def test_a_mig_request_that_the_worker_fails_on_is_answered_and_the_next_one_taken_up(monkeypatch, quick):
    failures, said = failures_of()
    worker = mig_worker.Worker("n", SimpleNamespace(failures=failures), Path("/x"), lambda: 1 // 0)
    written, requests = [], [MigRequest("all-1g", "1"), MigRequest("all-1g", "2")]

    async def write(result):
        written.append(result)
        if len(written) == 1:
            raise ZeroDivisionError
        worker._look.set()
        await asyncio.sleep(0)

    monkeypatch.setattr(worker._nodes, "run", forever)
    monkeypatch.setattr(worker, "_open_request", lambda: requests[min(len(written) // 2, 1)])
    monkeypatch.setattr(worker, "_write", write)
    async with running(worker.run()):
        await eventually(lambda: len(written) > 2)
    assert [each.attempt for each in written[:3]] == ["1", "1", "2"]
    assert {each.error for each in written} == {mig_worker.FAILED}
    assert said.reasons == [("n", "HandlingFailed")]


@pytest.mark.parametrize("error", [ZeroDivisionError(), ApiUnavailableError("away")])
async def test_a_webhook_configuration_that_fails_keeps_the_other_from_nothing(monkeypatch, error):
    target = UrlTarget("localhost", 1)
    failures, said = failures_of()
    webhooks = Webhooks(SimpleNamespace(failures=failures), WebhookSettings(target), target, bytes)
    seen = []

    async def look_after(resource, _):
        seen.append(resource.kind)
        if resource.kind.startswith("Mutating") and len(seen) == 1:
            raise error

    monkeypatch.setattr(webhooks, "_check_configuration", look_after)
    assert not await webhooks.register()
    assert len(set(seen)) == 2
    assert not webhooks._done.is_set()
    assert said.reasons == ([("purser-mutating", "HandlingFailed")] if isinstance(error, ZeroDivisionError) else [])
    assert await webhooks.register()
    await webhooks.done()


async def test_a_topology_that_cannot_be_forgotten_keeps_the_others_from_nothing(monkeypatch):
    failures, said = failures_of()
    forgotten, following = [], set()

    class Following:
        def __init__(self, *_, **__):
            self.failures = failures
            objects = (topologies_module.NodeResourceTopology(ObjectMeta(name=name)) for name in ("bad", "good"))
            self.store = {each.metadata.name: each for each in objects}

        async def run(self):
            following.add(self)
            await forever()

        def add_handler(self, *_, **__):
            pass

    def remove(topology):
        if topology.metadata.name == "bad":
            raise ZeroDivisionError
        forgotten.append(topology.metadata.name)

    monkeypatch.setattr(topologies_module, "Informer", Following)
    kubelets = SimpleNamespace(put_topology=None, remove_topology=remove)
    topologies = topologies_module.Topologies(SimpleNamespace(), kubelets)
    topologies._set(True)
    async with running(topologies.run()):
        await eventually(lambda: len(following) == 2)
        topologies._set(False)
        await eventually(lambda: forgotten == ["good"])
    assert said.reasons == [("bad", "HandlingFailed")]


@pytest.mark.parametrize("error", [ZeroDivisionError(), ApiUnavailableError("away")])
async def test_a_pod_that_cannot_be_taken_off_keeps_no_gpu_from_the_others(monkeypatch, error):
    failures, said = failures_of()
    card = Device("GPU-1", 0, "T4", 1000, slots=10)
    held = {name: grant(name, "GPU-1") for name in ("bad", "late", "first")}
    ledger = SimpleNamespace(
        grants=lambda node: list(held.values()),
        state=lambda uid: GrantState.RUNNING if uid == "u-first" else GrantState.BOUND,
    )
    pods = {each.pod_uid: Pod(ObjectMeta(name=each.pod, namespace="ns", uid=each.pod_uid)) for each in held.values()}
    node = SimpleNamespace(devices=[SimpleNamespace(device=card)])
    cache = SimpleNamespace(fleet=SimpleNamespace(node=lambda name: node), ledger=ledger, pod_by_uid=pods.get)
    doubles = DoubleGrants(SimpleNamespace(failures=failures), cache, Said(), None, lambda: True)
    taken_off = []

    async def take_off(pod, uuids, rivals):
        if pod.metadata.name == "bad":
            raise error
        taken_off.append((pod.metadata.name, uuids, rivals))

    monkeypatch.setattr(doubles, "_delete_or_report", take_off)
    if isinstance(error, ApiUnavailableError):
        with pytest.raises(ApiUnavailableError):
            await doubles._check_node("n1")
    else:
        await doubles._check_node("n1")
        assert said.reasons == [("bad", "HandlingFailed")]
    assert taken_off == [("late", ["GPU-1"], ["ns/first"])]


async def test_an_emulated_kubelet_gives_every_pod_its_turn(monkeypatch):
    failures, said = failures_of()
    nothing = SimpleNamespace(failures=failures)
    workers = PodWorkers(NodeSettings("n1"), nothing, None, None, None, None, ManualTime(), None, None, None)
    taken, freed = [], []

    async def take(pod):
        if pod["metadata"]["name"] == "bad":
            raise ZeroDivisionError
        taken.append(pod["metadata"]["name"])

    def active():
        freed.append(1)
        return None if len(freed) > 1 else {}["uid"]

    monkeypatch.setattr(workers, "_take", take)
    monkeypatch.setattr(workers, "_active_uids", active)
    for name in ("bad", "good"):
        workers.added(pod(name))
    async with running(workers.run()), running(workers.keep_freeing_cpus()):
        await eventually(lambda: taken == ["good"] and len(freed) > 1)
    assert said.reasons == [("bad", "HandlingFailed")]


def test_facts_of_a_node_that_cannot_be_read_are_reported():
    failures, said = failures_of()
    observer = Observer(SimpleNamespace(failures=failures), "purser", "image")
    texts = {"odd": '{"gpus":3}', "right": "{}", "none": ""}
    nodes = [Node(ObjectMeta(name=name, annotations={NODE_FACTS_ANNOTATION: text})) for name, text in texts.items()]
    observer._nodes._take(nodes, ())
    assert said.reasons == [("odd", "Unreadable")]


async def test_a_pod_or_node_that_a_queues_worker_fails_on_is_reported_and_comes_again(monkeypatch):
    failures, said = failures_of()
    missed_pod = Pod(ObjectMeta(name="missed", namespace="ns", uid="u"))
    pods = SimpleNamespace(store={"ns/missed": missed_pod}, add_handler=lambda *_: None)
    client = SimpleNamespace(failures=failures)
    cache = SimpleNamespace(
        clock=SystemClock(),
        ledger=SimpleNamespace(violations=lambda: [SimpleNamespace(node="n1")]),
        bound_grants=SimpleNamespace(),
    )
    missed = MissedPods(client, cache, pods, None, Said(), lambda: True, None)
    doubles = DoubleGrants(client, cache, Said(), None, lambda: True)
    turns = Odd(), Odd()
    monkeypatch.setattr(missed, "_reconcile", turns[0])
    monkeypatch.setattr(doubles, "_check_node", turns[1])
    missed._queue.add("ns/missed")
    async with running(missed.run(), doubles.run()):
        await eventually(lambda: all(turn.went_well for turn in turns))
    assert sorted(said.reasons) == [("missed", "HandlingFailed"), ("n1", "HandlingFailed")]


async def test_a_device_plugin_whose_list_cannot_be_taken_in_has_stopped(monkeypatch):
    async def watch(_):
        yield SimpleNamespace(devices=[SimpleNamespace(ID="x", health="Healthy", HasField=lambda _: 1 // 0)])

    books = SimpleNamespace(behaviour=behaviour((1, 20, 2)))
    endpoints = Endpoints(books, ManualTime(), lambda: None)
    channel = SimpleNamespace(close=lambda: asyncio.sleep(0))
    endpoint = _Endpoint("r", Path("r.sock"), channel, SimpleNamespace(ListAndWatch=watch))
    endpoints._endpoints["r"] = endpoint
    without = []
    monkeypatch.setattr(endpoints, "_stop_resource", without.append)
    await endpoints._watch(endpoint)
    assert (without, endpoint.is_stopped) == (["r"], True)


@pytest.mark.parametrize(("written", "read"), [(3, 3), (None, 0), ("x", 0), ([], 0), (1.5, 0)])
def test_a_policy_of_an_odd_generation_is_one_all_the_same(written, read):
    assert generation_of({"metadata": {"generation": written}}) == read
