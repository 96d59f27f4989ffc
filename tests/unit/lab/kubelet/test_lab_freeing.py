"""When kubelet takes back what pods held: devices whenever it needs to know, CPUs every ten seconds."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.unit.kube.servers import ManualClock, api_server
from tests.unit.lab.kubelet.rig import (
    GPU,
    MACHINE,
    Node,
    Plugin,
    container,
    devices,
    register,
    running,
    serving,
)
from tests.waiting import eventually

from purser.core.kubelet.devicemanager import checkpoint
from purser.kube.events import EventRecorder
from purser.lab.kubelet.configuration import KubeletSection, configure
from purser.lab.kubelet.node import NodeSettings
from purser.lab.kubelet.podworkers import PodWorkers
from purser.lab.kubelet.runtime import Runtime

STATIC = {"version": "v1.33.4", "cpuManagerPolicy": "static"}
"""Before 1.34 PodResources lists pods that are over."""


@pytest.fixture
async def client(folder):
    """Of a cluster that knows none of the pods: nothing is left to write about them."""
    async with api_server(folder / "kubeconfig", tls=False) as (_, client):
        yield client


class World:
    """Pod workers on a node, with a clock of their own."""

    def __init__(self, node, plugin, client):
        self.node, self.plugin, self.clock = node, plugin, ManualClock()
        version = node.books.node.config.version
        section = msgspec.convert({**STATIC, "version": version}, KubeletSection)
        settings = NodeSettings("n1", machine=MACHINE, kubelet=configure(section, MACHINE))
        self.runtime = Runtime(node.folder / "pods")
        self.rejected = []
        recorder = EventRecorder(client, "kubelet", "n1")
        self.workers = PodWorkers(
            settings,
            client,
            node.books,
            node.endpoints,
            self.runtime,
            recorder,
            self.clock,
            self.rejected.append,
            lambda _pod: None,
            lambda _uid: None,
        )

    def holders(self):
        """The pods that hold devices, and those that hold CPUs, as the books say."""
        state = self.node.books.state
        return {uid for uid, _ in state.devices.held}, {uid for uid, _ in state.cpus.exclusive}

    def saved(self):
        """The pods that hold devices, as the checkpoint says."""
        return {uid for uid, _ in checkpoint.decode(self.node.checkpoint.read_bytes()).held}

    async def admit(self, uid):
        self.workers.added(pod(uid))
        await eventually(lambda: all(uid in of_kind for of_kind in self.holders()))


@asynccontextmanager
async def living(folder, client, version=STATIC["version"]):
    async with running(Node(folder, **{**STATIC, "version": version})) as node, serving(node, Plugin()) as plugin:
        await register(node)
        await node.until_capacity(3)
        async with at_work(World(node, plugin, client)) as world:
            yield world


@asynccontextmanager
async def at_work(world):
    tasks = [asyncio.create_task(work()) for work in (world.workers.run, world.workers.keep_freeing_cpus)]
    try:
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def world(folder, client):
    async with living(folder, client) as world:
        world.workers.all_reported()
        yield world


def pod(uid):
    return {
        "metadata": {"uid": uid, "name": f"pod-{uid}", "namespace": "default"},
        "spec": {"containers": [container("c", 1, cpu="2", memory="1Gi")]},
    }


def ended(uid):
    return {**pod(uid), "status": {"phase": "Succeeded"}}


async def test_cpus_of_a_pod_that_is_gone_are_free_within_ten_seconds_its_devices_when_the_next_one_comes(world):
    await world.admit("gone")
    world.workers.deleted(pod("gone"))
    assert world.holders() == ({"gone"}, {"gone"})
    world.clock.advance(10)
    await eventually(lambda: world.holders() == ({"gone"}, set()))
    assert world.node.books.state.cpus.default == world.node.books.node.machine.all_cpus
    await world.admit("next")
    assert world.holders() == ({"next"}, {"next"})
    assert world.node.books.devices.allocated == {GPU: {"c"}}


async def test_before_kubelet_knows_all_pods_nothing_is_free(folder, client):
    async with living(folder, client) as world:
        await world.admit("early")
        world.workers.updated(pod("early"), ended("early"))
        (listed,) = world.workers.listed()
        assert listed.holds_devices
        world.clock.advance(10)
        await asyncio.sleep(0)
        assert world.holders() == ({"early"}, {"early"})


async def test_a_pod_that_is_over_is_listed_without_devices_and_loses_them_by_it(world):
    for uid in ("over", "alive"):
        await world.admit(uid)
    world.workers.updated(pod("over"), ended("over"))
    assert {each.uid: each.holds_devices for each in world.workers.listed()} == {"over": False, "alive": True}
    assert world.holders() == ({"alive"}, {"over", "alive"})


async def test_what_listing_freed_is_in_the_checkpoint_until_the_plugins_next_list(world):
    await world.admit("gone")
    world.workers.deleted(pod("gone"))
    assert list(world.workers.listed()) == []
    assert not world.holders()[0]
    assert world.saved() == {"gone"}
    world.plugin.devices.put_nowait(devices(("a", "b")))
    await world.node.until_capacity(2)
    assert world.saved() == set()


async def test_listing_in_the_midst_of_an_admission_hides_the_devices_of_a_pod_that_is_over_but_writes_nothing(world):
    await world.admit("over")
    seen = []

    async def look():
        world.workers.updated(pod("over"), ended("over"))
        before = world.node.books.state
        seen.append({each.uid: each.holds_devices for each in world.workers.listed()})
        seen.append(world.node.books.state is before)

    world.plugin.during_allocate = look
    await world.admit("next")
    assert seen == [{"over": False, "next": True}, True]


async def test_cpus_of_a_pod_that_goes_while_another_is_admitted_are_free_after_that(world):
    await world.admit("gone")

    async def tidy():
        world.workers.deleted(pod("gone"))
        list(world.workers.listed())
        world.clock.advance(10)
        await asyncio.sleep(0)  # What reconciles now must not be undone by the admission.

    world.plugin.during_allocate = tidy
    world.workers.added(pod("next"))
    await eventually(lambda: world.holders()[1] == {"next"})
    assert world.node.books.state.cpus.default.bit_count() == 14


@pytest.mark.parametrize(("version", "keeps"), [("v1.32.0", False), ("v1.31.14", True), ("v1.22.0", False)])
async def test_some_kubelets_take_the_pod_that_was_asked_for_last_for_alive(folder, client, version, keeps):
    async with living(folder, client, version) as world:
        world.workers.all_reported()
        for uid in ("before", "last"):
            await world.admit(uid)
            world.workers.updated(pod(uid), ended(uid))
        assert {each.uid: each.holds_devices for each in world.workers.listed()} == {"before": False, "last": keeps}
        left = {"last"} if keeps else set()
        world.clock.advance(10)
        await eventually(lambda: world.holders() == (left, left))


async def test_kubelets_that_keep_the_last_pod_keep_its_cpus_until_a_pod_gets_beyond_its_devices(
    folder, client, monkeypatch
):
    async with living(folder, client, "v1.28.15") as world:
        world.workers.all_reported()
        await world.admit("cpus")
        world.workers.deleted(pod("cpus"))
        world.plugin.failure = "no"
        world.workers.added(pod("refused"))
        await eventually(lambda: world.rejected)
        rounds, sleep = [], world.clock.sleep
        monkeypatch.setattr(world.clock, "sleep", lambda seconds: rounds.append(seconds) or sleep(seconds))
        world.clock.advance(10)
        await eventually(lambda: 10 in rounds)  # one is over, and waits for the next
        assert world.holders() == (set(), {"cpus"})


@pytest.mark.parametrize(("version", "listed"), [("v1.29.15", ["c"]), ("v1.30.0", ["sidecar", "c"])])
async def test_sidecars_are_listed_by_newer_kubelets(folder, client, version, listed):
    async with living(folder, client, version) as world:
        seen = pod("p")
        inits = [container("init"), {**container("sidecar"), "restartPolicy": "Always"}]
        world.workers.added({**seen, "spec": {**seen["spec"], "initContainers": inits}})
        await eventually(lambda: [list(each.containers) for each in world.workers.listed()] == [listed])


async def test_the_last_pod_of_a_restart_keeps_running_while_its_plugin_is_still_away(folder, client):
    async with living(folder, client) as before:
        await before.admit("runs")
        await eventually(lambda: before.runtime.get("runs", "c"))
    async with at_work(World(Node(folder, **STATIC), None, client)) as world:
        for uid in ("new", "runs"):
            world.workers.added(pod(uid))
        world.workers.all_reported()
        await eventually(lambda: [each.holds_devices for each in world.workers.listed()] == [False, True])
        assert world.rejected == ["UnexpectedAdmissionError"]
