"""What one turn of a loop fails on ends no process: it is logged, counted, and the loop restarts after a pause."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from purser.agent.admission import ListedPod
from purser.agent.arbiter import Arbiter
from purser.agent.disputes import DisputeWatch
from purser.agent.health import DeviceMonitor
from purser.agent.mig import worker as mig_worker
from purser.agent.nvml.calls import DeviceCalls
from purser.agent.registration import FAILED, FileIdentity, PluginRegistration
from purser.agent.run import Agent
from purser.agent.settings import AgentSettings
from purser.core.health.signs import FaultKind
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, GrantState
from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.mig_messages import MigRequest
from purser.kube import failures as failures_module
from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.kube.config import ClusterConfig
from purser.kube.errors import ApiUnavailableError
from purser.kube.failures import ObjectFailures
from purser.kube.objects import Node, ObjectMeta, Pod
from purser.lab.kubelet.endpoints import Endpoints, _Endpoint
from purser.lab.kubelet.node import NodeReporter, NodeSettings
from purser.lab.kubelet.podworkers import PodWorkers
from purser.operator.observing import Observer
from purser.operator.observing import observer as observer_module
from purser.operator.policy.decoding import generation_of
from purser.scheduler import run as scheduler_run
from purser.scheduler.binding.double_grants import DoubleGrants
from purser.scheduler.cache import topologies as topologies_module
from purser.scheduler.certificates_keeper import CertificateKeeper
from purser.scheduler.extender import extender as extender_module
from purser.scheduler.missed_pods import MissedPods
from purser.scheduler.settings import SchedulerSettings, UrlTarget, WebhookSettings
from purser.scheduler.webhook.registration import WebhookRegistration as Webhooks
from tests.unit.agent.builders import A, B
from tests.unit.agent.test_device_monitor import Driver, healthy, monitoring
from tests.unit.kube.servers import client_of, eventually, listing, pod, running
from tests.unit.kube.test_informer import Script, informer_of
from tests.unit.scheduler.extender_world import replica, server


class Said:
    """Events, as they are posted."""

    def __init__(self):
        self.events = []

    def event(self, about, reason, message, type="Normal"):
        self.events.append((about.name, reason))


class ManualTime:
    """Sleeps are over at once, and others get their turn."""

    def monotonic(self):
        return 0.0

    def now(self):
        return SystemClock().now()

    async def sleep(self, _):
        await asyncio.sleep(0.001)


class Clock:
    """Notes how long others sleep, and lets them."""

    def __init__(self):
        self.now, self.slept = 0.0, []

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def quick(monkeypatch):
    """What failed is restarted at once."""
    monkeypatch.setattr(failures_module, "RESTART_S", 0.001)


class Odd:
    """Fails, unexpectedly, so many times; after that it goes well, and waits."""

    def __init__(self, times=1):
        self.left, self.went_well = times, 0

    async def __call__(self, *_):
        if self.left:
            self.left -= 1
            raise ZeroDivisionError
        self.went_well += 1
        await asyncio.Event().wait()


async def forever(*_):
    await asyncio.Event().wait()


def failures_of():
    failures, registry, said = ObjectFailures(), CollectorRegistry(), Said()
    failures.report_to(registry, said)
    return failures, registry, said


async def test_a_loop_that_fails_restarts_ever_later_and_ends_when_it_is_cancelled():
    failures, registry, _ = failures_of()
    clock, turns = Clock(), []

    async def loop():
        turns.append(clock.now)
        if len(turns) == 12:
            clock.now += 1000
        if len(turns) == 14:
            raise asyncio.CancelledError
        raise KeyError

    with pytest.raises(asyncio.CancelledError):
        await failures.keep_going("x", loop, clock)
    assert clock.slept[0] <= 1
    assert all(0.5 * 2**number <= pause <= 2**number for number, pause in enumerate(clock.slept[:6]))
    assert 30 <= clock.slept[10] <= 60
    assert clock.slept[11] <= 1, "it went well for long"
    assert registry.get_sample_value("purser_loop_failures_total", {"loop": "x"}) == 13


async def test_what_the_extender_fails_on_takes_no_turn_of_the_rest(monkeypatch):
    monkeypatch.setattr(extender_module, "RESOLVE_PERIOD_S", 0.01)
    done = []

    async def fails():
        raise ZeroDivisionError

    async def works():
        done.append("looked")

    async with server() as api, replica(api) as world:
        extender = world.extender
        monkeypatch.setattr(extender._binder, "resolve", fails)
        monkeypatch.setattr(extender, "_follow_leadership", fails)
        monkeypatch.setattr(extender._cache.disputes, "tick", lambda: 1 // 0)
        monkeypatch.setattr(extender, "retry_refused", works)
        monkeypatch.setattr(extender._cache, "grants_by_state", lambda: done.append("counted") or {})
        async with running(extender.run()):
            await eventually(lambda: done.count("looked") > 2 and done.count("counted") > 2)


def grant(name: str, uuid: str) -> Grant:
    share = DeviceShare(uuid, 1000, 10)
    return Grant(f"u-{name}", "ns", name, "n1", (ContainerGrant("main", ContainerKind.APP, (share,)),))


@pytest.mark.parametrize(("card", "refused"), [("GPU-1", True), ("GPU-2", False)])
def test_a_pod_that_cannot_be_booked_stands_in_the_way_of_those_alone_that_want_its_gpus(card, refused):
    failures, _, said = failures_of()
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
    assert said.events == [("bad", "HandlingFailed")]


async def test_an_informer_relists_after_what_it_cannot_handle(monkeypatch):
    script = Script(listing([pod("a")], 5), listing([pod("b", 8)], 9))
    async with client_of(script.handle) as client:
        registry = CollectorRegistry()
        client.failures.report_to(registry, Said())
        informer = informer_of(client)
        take, taken = informer._take, []

        def fails_once(items, unreadable):
            taken.append([each.metadata.name for each in items])
            if len(taken) == 1:
                raise ZeroDivisionError
            take(items, unreadable)

        monkeypatch.setattr(informer, "_take", fails_once)
        async with running(informer.run()):
            await informer.synced()
    assert (taken, list(informer.store)) == ([["a"], ["b"]], ["ns/b"])
    assert registry.get_sample_value("purser_loop_failures_total", {"loop": "informer of pods"}) == 1


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


async def test_what_the_device_monitor_fails_on_takes_no_turn_of_the_rest(monkeypatch, quick):
    monitor = DeviceMonitor(AgentSettings(node_name="n"), Driver(), failures=failures_of()[0])
    turns = {name: Odd() for name in ("_probe_forever", "_look_again_forever", "_reload_forever")}
    for name, turn in turns.items():
        monkeypatch.setattr(monitor, name, turn)
    async with running(monitor.run(asyncio.Event())):
        await eventually(lambda: all(turn.went_well for turn in turns.values()))


def test_a_gpu_that_answers_with_rubbish_has_a_fault():
    nvml = SimpleNamespace(NVMLError=OSError, nvmlDeviceGetName=lambda handle: None)
    calls = DeviceCalls(nvml)
    assert calls.need(lambda answer: answer.decode(), "nvmlDeviceGetName", 0) is None
    assert calls.fault.kind is FaultKind.UNKNOWN


def client_without_server():
    return Client(ClusterConfig.insecure("http://127.0.0.1:9"))


async def test_what_one_part_of_the_agent_fails_on_ends_no_other(monkeypatch, quick, tmp_path):
    settings = AgentSettings(node_name="n", state_dir=tmp_path, metrics_address="127.0.0.1", metrics_port=0)
    async with client_without_server() as client:
        agent = Agent(settings, client, Driver(), SimpleNamespace(), Said(), None)
        parts = {"registration": Odd(), "facts": Odd()}
        monkeypatch.setattr(agent._registration, "run", parts["registration"])
        monkeypatch.setattr(agent._facts, "run", parts["facts"])
        monkeypatch.setattr(agent._janitor, "run", forever)
        sweeps = []

        async def sweep():
            sweeps.append(1)
            return 1 // (len(sweeps) - 1)

        monkeypatch.setattr(agent._janitor, "sweep", sweep)
        for informer in (agent._pods.pods, agent._pods.key_maps):
            monkeypatch.setattr(informer, "synced", lambda: asyncio.sleep(0))
        for part in (agent._publisher, agent._disputes, agent._pods.pods, agent._pods.key_maps):
            monkeypatch.setattr(part, "run", forever)
        async with running(agent.run(asyncio.Event(), lambda port: None)):
            await eventually(lambda: all(part.went_well for part in parts.values()))
    assert len(sweeps) == 2


async def test_while_the_registration_with_kubelet_fails_the_agent_is_not_ready(monkeypatch, tmp_path):
    settings = AgentSettings(node_name="n", device_plugin_dir=tmp_path)
    registration = PluginRegistration(settings, "nvidia.com/gpu", lambda resource: None, SimpleNamespace())
    monkeypatch.setattr("purser.agent.registration.identity_of", lambda path: FileIdentity(1, 2, 3))
    monkeypatch.setattr(registration, "_once", Odd())
    with pytest.raises(ZeroDivisionError):
        await registration.run()
    assert (registration.connection.value.ready, registration.connection.value.problem) == (False, FAILED)


async def test_what_the_comparison_of_ledgers_fails_on_is_counted(monkeypatch):
    failures, registry, _ = failures_of()
    informer = SimpleNamespace(add_handler=lambda **_: None, synced=lambda: asyncio.sleep(0), failures=failures)
    pods = SimpleNamespace(pods=informer, key_maps=informer)
    watch = DisputeWatch("n", pods, None, None, dict, Clock())
    turns = []

    async def look():
        turns.append(1)
        return 1 // 0

    monkeypatch.setattr(watch, "look", look)
    async with running(watch.run()):
        await eventually(lambda: len(turns) > 1)
    assert registry.get_sample_value("purser_loop_failures_total", {"loop": "comparing records"}) >= 1


async def test_a_mig_request_that_the_worker_fails_on_is_answered_and_the_next_one_taken_up(monkeypatch, quick):
    failures, _, said = failures_of()
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
    assert said.events == [("n", "HandlingFailed")]


async def test_what_one_part_of_the_scheduler_fails_on_ends_no_other(monkeypatch, quick):
    keys, budgets = Odd(), Odd()
    informer = SimpleNamespace(run=forever, synced=lambda: asyncio.sleep(0))
    parts = SimpleNamespace(
        nodes=informer,
        pods=informer,
        quotas=informer,
        namespaces=informer,
        keys=SimpleNamespace(run=keys),
        follower=None,
        extender=SimpleNamespace(run=forever),
        cache=SimpleNamespace(kubelets=None, budgets=SimpleNamespace(follow=budgets)),
    )
    monkeypatch.setattr(topologies_module.Topologies, "run", forever)
    refresh, refreshed = CertificateKeeper.refresh, []

    async def refresh_at_the_second_time(keeper):
        refreshed.append(1)
        if len(refreshed) == 1:
            raise ZeroDivisionError
        await refresh(keeper)

    monkeypatch.setattr(CertificateKeeper, "refresh", refresh_at_the_second_time)
    async with client_without_server() as client:
        tasks = []

        def spawn(work):
            tasks.append(asyncio.create_task(work))
            return tasks[-1]

        await scheduler_run._start_parts(parts, client, spawn)
        keeper = await asyncio.wait_for(scheduler_run._start_keeper(SchedulerSettings(webhook=None), client, spawn), 30)
        await eventually(lambda: keys.went_well and budgets.went_well)
        assert keeper.is_valid
        assert not [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("error", [ZeroDivisionError(), ApiUnavailableError("away")])
async def test_a_webhook_configuration_that_fails_keeps_the_other_from_nothing(monkeypatch, error):
    target = UrlTarget("localhost", 1)
    failures, _, said = failures_of()
    webhooks = Webhooks(SimpleNamespace(failures=failures), WebhookSettings(target), target, bytes)
    seen = []

    async def look_after(resource, _):
        seen.append(resource.kind)
        if resource.kind.startswith("Mutating") and len(seen) == 1:
            raise error

    monkeypatch.setattr(webhooks, "_look_after", look_after)
    assert not await webhooks.register()
    assert len(set(seen)) == 2
    assert not webhooks._done.is_set()
    assert said.events == ([("purser-mutating", "HandlingFailed")] if isinstance(error, ZeroDivisionError) else [])
    assert await webhooks.register()
    await webhooks.done()


async def test_a_topology_that_cannot_be_forgotten_keeps_the_others_from_nothing(monkeypatch):
    failures, _, said = failures_of()
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
    assert said.events == [("bad", "HandlingFailed")]


@pytest.mark.parametrize("error", [ZeroDivisionError(), ApiUnavailableError("away")])
async def test_a_pod_that_cannot_be_taken_off_keeps_no_gpu_from_the_others(monkeypatch, error):
    failures, _, said = failures_of()
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

    monkeypatch.setattr(doubles, "_take_off", take_off)
    if isinstance(error, ApiUnavailableError):
        with pytest.raises(ApiUnavailableError):
            await doubles._see_to("n1")
    else:
        await doubles._see_to("n1")
        assert said.events == [("bad", "HandlingFailed")]
    assert taken_off == [("late", ["GPU-1"], ["ns/first"])]


async def test_an_emulated_kubelet_goes_on_telling_of_its_node(monkeypatch):
    failures, registry, _ = failures_of()
    reporter = NodeReporter(NodeSettings("n1"), SimpleNamespace(failures=failures), None, ManualTime())
    reported, renewed = [], []

    async def report():
        reported.append(1)
        reporter.changed()
        await asyncio.sleep(0)
        return 1 // (len(reported) - 1)

    async def renew(*_):
        renewed.append(1)
        return 1 // (len(renewed) - 1)

    monkeypatch.setattr(reporter, "_report", report)
    monkeypatch.setattr("purser.lab.kubelet.node.keep_leases", renew)
    reporter.changed()
    async with running(reporter.run()):
        await eventually(lambda: len(reported) > 1 and len(renewed) > 1)
    for loop in ("node status", "node lease"):
        assert registry.get_sample_value("purser_loop_failures_total", {"loop": loop}) == 1


async def test_an_emulated_kubelet_gives_every_pod_its_turn(monkeypatch):
    failures, _, said = failures_of()
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
    monkeypatch.setattr(workers, "_active", active)
    for name in ("bad", "good"):
        workers.added(pod(name))
    async with running(workers.run()), running(workers.keep_freeing_cpus()):
        await eventually(lambda: taken == ["good"] and len(freed) > 1)
    assert said.events == [("bad", "HandlingFailed")]


def test_facts_of_a_node_that_cannot_be_read_are_reported():
    failures, _, said = failures_of()
    observer = Observer(SimpleNamespace(failures=failures), "purser", "image")
    texts = {"odd": '{"gpus":3}', "right": "{}", "none": ""}
    nodes = [Node(ObjectMeta(name=name, annotations={NODE_FACTS_ANNOTATION: text})) for name, text in texts.items()]
    observer._nodes._take(nodes, ())
    assert said.events == [("odd", "Unreadable")]


async def test_what_one_part_of_the_operators_view_fails_on_ends_no_other(monkeypatch, quick):
    turns = {"rivals": Odd(), "node features": Odd(), "workloads": Odd()}

    async def follow(_client, informer, _clock, note):
        note(False)
        await (turns["rivals"]() if informer.resource.plural == "clusterpolicies" else forever())

    async def look(_look, _clock, looked):
        looked.set()
        await turns["node features"]()

    monkeypatch.setattr(observer_module, "follow_if_served", follow)
    monkeypatch.setattr(observer_module, "look_again_and_again", look)
    monkeypatch.setattr(observer_module.Informer, "run", forever)
    monkeypatch.setattr(observer_module.Informer, "synced", lambda _: asyncio.sleep(0))
    async with client_without_server() as client:
        observer = Observer(client, "purser", "image")
        monkeypatch.setattr(observer, "_find_policy_version", lambda: asyncio.sleep(0, "v1"))
        monkeypatch.setattr(observer._workloads, "run", turns["workloads"])
        async with running(observer.run()):
            await eventually(lambda: all(turn.went_well for turn in turns.values()))


async def test_a_pod_or_node_that_a_queues_worker_fails_on_is_reported_and_comes_again(monkeypatch):
    failures, _, said = failures_of()
    missed_pod = Pod(ObjectMeta(name="missed", namespace="ns", uid="u"))
    pods = SimpleNamespace(store={"ns/missed": missed_pod}, add_handler=lambda *_: None)
    client = SimpleNamespace(failures=failures)
    cache = SimpleNamespace(
        clock=SystemClock(), ledger=SimpleNamespace(violations=lambda: [SimpleNamespace(node="n1")])
    )
    missed = MissedPods(client, cache, pods, None, Said(), lambda: True)
    doubles = DoubleGrants(client, cache, Said(), None, lambda: True)
    turns = Odd(), Odd()
    monkeypatch.setattr(missed, "_see_to", turns[0])
    monkeypatch.setattr(doubles, "_see_to", turns[1])
    missed._queue.add("ns/missed")
    async with running(missed.run(), doubles.run()):
        await eventually(lambda: all(turn.went_well for turn in turns))
    assert sorted(said.events) == [("missed", "HandlingFailed"), ("n1", "HandlingFailed")]


async def test_a_device_plugin_whose_list_cannot_be_taken_in_has_stopped(monkeypatch):
    async def watch(_):
        yield SimpleNamespace(devices=[SimpleNamespace(ID="x", health="Healthy", HasField=lambda _: 1 // 0)])

    books = SimpleNamespace(behaviour=SimpleNamespace(ends_newest_plugin=False))
    endpoints = Endpoints(books, ManualTime(), lambda: None)
    channel = SimpleNamespace(close=lambda: asyncio.sleep(0))
    endpoint = _Endpoint("r", Path("r.sock"), channel, SimpleNamespace(ListAndWatch=watch))
    endpoints._endpoints["r"] = endpoint
    without = []
    monkeypatch.setattr(endpoints, "_without", without.append)
    await endpoints._watch(endpoint)
    assert (without, endpoint.is_stopped) == (["r"], True)


@pytest.mark.parametrize(("written", "read"), [(3, 3), (None, 0), ("x", 0), ([], 0), (1.5, 0)])
def test_a_policy_of_an_odd_generation_is_one_all_the_same(written, read):
    assert generation_of({"metadata": {"generation": written}}) == read
