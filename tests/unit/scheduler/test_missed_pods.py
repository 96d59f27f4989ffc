"""Pods that missed the webhook, against the lab's API server over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest
from tests.waiting import eventually

from purser.core.names import GRANT_ANNOTATION
from purser.core.vendors.catalogue import families_of
from purser.kube import Client, ClusterConfig, EventRecorder, Informer, NotFoundError, untyped_resource
from purser.kube.objects import Pod
from purser.kube.resources import EVENTS, NAMESPACES, PODS
from purser.lab.apiserver import ApiServer
from purser.scheduler import missed_pods as missed_pods_module
from purser.scheduler.cache.cache import ClusterCache
from purser.scheduler.missed_pods import MissedPods, RecreationBackoff
from purser.scheduler.reasons import SchedulerReason

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
SHARE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}


class World:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.active = True
        self.is_called = True
        self.asked = 0
        """How often whether it is active."""
        self.owner: dict[str, str] = {}

    async def is_webhook_called(self, pod: Pod) -> bool:
        return self.is_called

    def is_active(self) -> bool:
        self.asked += 1
        return self.active

    async def pod(self, name: str, limits: dict[str, str] | None = None, *, owned: bool = False, **fields) -> None:
        labels, annotations = fields.pop("labels", {}), fields.pop("annotations", {})
        namespace = fields.pop("namespace", "default")
        body = {
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [self.owner] if owned else [],
            },
            "spec": {
                "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits or {}}}],
                **fields,
            },
        }
        await self.client.create(PODS, body, namespace)

    async def exists(self, name: str, namespace: str = "default") -> bool:
        try:
            await self.client.get(PODS, name, namespace)
        except NotFoundError:
            return False
        return True

    async def told(self, name: str) -> list[str]:
        found = await self.client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
        return [event.message for event in found.items if event.reason == SchedulerReason.MISSED_WEBHOOK]


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[World]:
    api = ApiServer(tls=False)
    await api.start()
    try:
        api.write_kubeconfig(tmp_path / "kubeconfig")
        async with Client(ClusterConfig.load(tmp_path / "kubeconfig")) as client:
            yield World(client)
    finally:
        await api.stop()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with serving(tmp_path) as world:
        template = {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template}
        made = await world.client.create(REPLICA_SETS, {"metadata": {"name": "owner"}, "spec": spec}, "default")
        world.owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "owner",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        yield world


OFFERED = frozenset({"gpu.intel.com/shared"})


@asynccontextmanager
async def looking(
    world: World, patience_s: float, adopted: tuple[str, ...] = (), offered: Collection[str] = OFFERED
) -> AsyncIterator[None]:
    pods, namespaces = Informer(world.client, PODS), Informer(world.client, NAMESPACES)
    async with EventRecorder(world.client, "purser-scheduler", "here") as events:
        tasks = [asyncio.create_task(each.run()) for each in (pods, namespaces)]
        await pods.synced()
        await namespaces.synced()
        cache = ClusterCache(MagicMock(), families=families_of(["Hygon DCU"]))
        with (
            patch.object(missed_pods_module, "CONTROLLER_NOTICE_TIMEOUT_S", patience_s),
            patch.object(missed_pods_module, "PROBE_PERIOD_S", 0.1),
            patch.object(cache, "offers", lambda resource: resource in offered),
            patch.object(cache.disputes, "is_reported", lambda node, _: node == "pursers"),
        ):
            acts = world.is_active, world.is_webhook_called
            found = MissedPods(world.client, cache, pods, namespaces, events, *acts, adopted)
            tasks.append(asyncio.create_task(found.run()))
            yield
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.fixture
async def missed_pods(world: World) -> AsyncIterator[None]:
    async with looking(world, patience_s=0.0):
        yield


async def test_a_missed_pod_is_left_alone_until_its_controller_must_have_heard_of_it(world: World) -> None:
    async def gone() -> bool:
        return not await world.exists("early")

    async with looking(world, patience_s=60.0):
        await world.pod("early", SHARE, owned=True)
        await world.pod("last", SHARE)
        await eventually(lambda: world.told("last"))  # so the one before Purser checked it as well
        assert not await gone()
    async with looking(world, patience_s=0.3):
        await eventually(gone)


async def test_a_missed_pod_that_was_bound_is_deleted_where_the_agent_withholds_it(
    world: World, missed_pods: None
) -> None:
    """One on a node of another plugin's may have its GPUs there, and wait for its image."""
    for node in ("others", "pursers"):
        await world.pod(f"owned-{node}", SHARE, owned=True, nodeName=node)
        await world.pod(f"granted-{node}", SHARE, owned=True, nodeName=node, annotations={GRANT_ANNOTATION: "{}"})
        await world.pod(f"own-scheduler-{node}", SHARE, owned=True, nodeName=node, schedulerName="purser-scheduler")
        await world.pod(f"bare-{node}", SHARE, nodeName=node)

    async def deleted() -> set[str]:
        """kubelet, which is not there, would end them."""
        return {
            p.metadata.name for p in (await world.client.list(PODS, "default")).items if p.metadata.deletion_timestamp
        }

    await eventually(deleted)
    await eventually(lambda: world.told("bare-pursers"))
    await world.pod("last", SHARE)
    await eventually(lambda: world.told("last"))
    assert await deleted() == {"owned-pursers"}
    assert not await world.told("bare-others")


async def test_a_missed_pod_with_a_controller_is_deleted_and_recreated(world: World, missed_pods: None) -> None:
    await world.pod("missed", SHARE, owned=True)

    async def gone() -> bool:
        return not await world.exists("missed")

    await eventually(gone)
    await eventually(lambda: world.told("missed"))
    [message] = await world.told("missed")
    assert "ReplicaSet owner recreates it" in message


async def test_a_missed_pod_without_a_controller_stays_and_gets_one_event(world: World, missed_pods: None) -> None:
    await world.pod("missed", SHARE)
    await eventually(lambda: world.told("missed"))
    await world.client.patch_merge(PODS, "missed", {"metadata": {"labels": {"touched": "yes"}}}, "default")
    [message] = await world.told("missed")
    assert "delete and recreate it" in message
    assert await world.exists("missed")


async def test_a_pod_for_devices_of_other_vendors_is_told_and_never_deleted(world: World, missed_pods: None) -> None:
    await world.pod("dcu", {"hygon.com/dcunum": "1"}, owned=True)
    await eventually(lambda: world.told("dcu"))
    assert await world.exists("dcu")


async def test_everything_else_is_left_alone(world: World, missed_pods: None) -> None:
    ignore = {"purser.dev/webhook": "ignore"}
    await world.client.create(NAMESPACES, {"metadata": {"name": "away", "labels": ignore}})
    await world.pod("plain", owned=True)
    await world.pod("ours", SHARE, owned=True, schedulerName="purser-scheduler")
    await world.pod("theirs", SHARE, owned=True, schedulerName="volcano")
    await world.pod("bound", SHARE, owned=True, nodeName="somewhere")
    await world.pod("labelled", SHARE, owned=True, labels=ignore)
    await world.pod("hami", SHARE, owned=True, labels={"hami.io/webhook": "ignore"})
    await world.pod("elsewhere", SHARE, namespace="away")
    await world.pod("gated", SHARE, owned=True, schedulingGates=[{"name": "queue"}])
    await world.pod("not-named", {"amd.com/gpu": "1"}, owned=True)
    await world.pod("missed", SHARE, owned=True)

    async def gone() -> bool:
        return not await world.exists("missed")

    await eventually(gone)
    for name in ("plain", "ours", "theirs", "bound", "labelled", "hami", "gated", "not-named"):
        assert await world.exists(name), name
        assert await world.told(name) == []
    assert await world.exists("elsewhere", "away")


async def test_a_replica_that_is_not_the_active_one_does_nothing(world: World) -> None:
    async def has_looked_at_both() -> bool:
        return world.asked >= 2

    async with looking(world, patience_s=0.0):
        world.active = False
        await world.pod("missed", SHARE, owned=True)
        await world.pod("told", SHARE)
        await eventually(has_looked_at_both)
    assert await world.exists("missed")
    assert await world.told("told") == []  # all events are posted by now


def test_pods_of_one_wave_go_at_once_and_a_later_wave_rests_twice_as_long_each_time() -> None:
    backoff = RecreationBackoff(at=100.0)
    assert backoff.wait_s(seen_at=99.0, now=101.0) == 0
    assert backoff.wait_s(seen_at=100.0, now=130.0) == 0
    assert backoff.wait_s(seen_at=110.0, now=130.0) == 30
    assert backoff.wait_s(seen_at=110.0, now=160.0) == 0
    assert backoff.wait_s(seen_at=150.0, now=161.0) == 0
    assert backoff.wait_s(seen_at=170.0, now=170.0) == 110
    assert backoff.wait_s(seen_at=170.0, now=280.0) == 0
    assert backoff.rest_s == 240


async def test_no_pod_is_deleted_before_the_webhook_is_called_again(world: World, missed_pods: None) -> None:
    """And its message says what it waits for."""
    world.is_called = False
    for name in ("first", "second"):
        await world.pod(name, SHARE, owned=True)
        await eventually(lambda name=name: world.told(name))
        [message] = await world.told(name)
        assert "Once it does, Purser deletes the pod, and ReplicaSet owner recreates it" in message
    assert [await world.exists(name) for name in ("first", "second")] == [True, True]
    world.is_called = True

    async def gone() -> bool:
        return not await world.exists("first") and not await world.exists("second")

    await eventually(gone)


async def test_owners_whose_pods_miss_a_webhook_that_is_called_rest(world: World, missed_pods: None) -> None:
    async def gone() -> bool:
        return not await world.exists("first")

    await world.pod("first", SHARE, owned=True)
    await eventually(gone)
    await world.pod("second", SHARE, owned=True)
    await world.pod("bare", SHARE)
    await eventually(lambda: world.told("bare"))
    assert await world.exists("second")


def test_no_rest_is_longer_than_an_hour() -> None:
    backoff, now = RecreationBackoff(at=0.0), 0.0
    for _ in range(20):
        now += backoff.rest_s + 1
        assert backoff.wait_s(seen_at=now, now=now) == 0
    assert backoff.rest_s == 3600


def test_an_owner_is_forgotten_an_hour_after_its_rest() -> None:
    backoff = RecreationBackoff(at=100.0)
    assert not backoff.is_over(100 + 60 + 3600)
    assert backoff.is_over(100 + 60 + 3600 + 1)


async def test_a_pod_of_another_scheduler_gets_one_event_that_it_gives_no_gpus(world: World, missed_pods: None) -> None:
    await world.pod("theirs", SHARE, schedulerName="volcano", owned=True)
    await world.pod("plain", schedulerName="volcano")

    async def told() -> list[str]:
        found = await world.client.list(EVENTS, "default", field_selector="involvedObject.name=theirs")
        return [event.message for event in found.items if event.reason == SchedulerReason.OTHER_SCHEDULER]

    await eventually(told)
    (message,) = await told()
    assert 'schedulerName is "volcano"' in message
    assert await world.exists("theirs")
    await world.pod("missed", SHARE)
    await eventually(lambda: world.told("missed"))
    events = await world.client.list(EVENTS, "default", field_selector="involvedObject.name=plain")
    assert not events.items


async def test_unserved_words_are_reported_on_the_pod(world: World) -> None:
    """Of a controller's pods nobody sees what the webhook warns of."""

    async def told(name: str) -> list[tuple[str, str]]:
        found = await world.client.list(EVENTS, "default", field_selector=f"involvedObject.name={name}")
        return [(event.reason, event.message) for event in found.items]

    async with looking(world, patience_s=0.0, adopted=("volcano",)):
        unknown = {"gpu.intel.com/i915": "1", "gpu.intel.com/memory.max": "3000"}
        await world.pod("theirs", unknown, schedulerName="kai-scheduler", owned=True)
        await world.pod("offered", {"gpu.intel.com/shared": "1"}, owned=True)
        await world.pod("bound", unknown, nodeName="somewhere", owned=True)
        await world.pod("adopted", unknown, schedulerName="volcano", owned=True)
        await world.pod("beside", {**SHARE, "gpu.intel.com/xe": "1"}, schedulerName="purser-scheduler", owned=True)
        for name, words in (("adopted", "offers gpu.intel.com/i915"), ("beside", "offers gpu.intel.com/xe")):
            await eventually(lambda name=name: told(name))
            [(reason, message)] = await told(name)
            assert reason == SchedulerReason.NOT_SERVED
            assert words in message
            assert message.count("does not support this resource") == 1
        assert [await told(name) for name in ("theirs", "offered", "bound")] == [[], [], []]
        assert await world.exists("adopted")


async def test_the_words_of_a_pod_are_reported_again_once_others_of_them_are_unserved(world: World) -> None:
    async def told() -> list[tuple[int, str]]:
        found = await world.client.list(EVENTS, "default", field_selector="involvedObject.name=p")
        return [(event.count, event.message.partition(",")[0]) for event in found.items]

    async def changed() -> None:
        """kube-scheduler has tried it once more."""
        label = {"metadata": {"labels": {"tries": str(len(tries))}}}
        await world.client.patch_merge(PODS, "p", label, "default")
        tries.append(label)

    tries: list[object] = []
    offered = {"gpu.intel.com/i915"}
    async with looking(world, patience_s=0.0, offered=offered):
        await world.pod("p", {"gpu.intel.com/i915": "1", "gpu.intel.com/xe": "1"}, schedulerName="purser-scheduler")
        first = (1, "no node offers gpu.intel.com/xe")
        await eventually(lambda: is_so(told, [first]))
        await changed()
        offered.symmetric_difference_update({"gpu.intel.com/i915", "gpu.intel.com/xe"})
        await changed()
        await eventually(lambda: is_so(told, [first, (1, "no node offers gpu.intel.com/i915")]))


async def is_so(probe, wanted) -> bool:
    return sorted(await probe()) == sorted(wanted)
