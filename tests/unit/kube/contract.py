"""What the client room expects of an API server: run against the lab's own and against a real kube-apiserver."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.kube.servers import eventually, running

from purser.adapters.dry_runs import dry_run
from purser.adapters.manifests import ManifestPod
from purser.kube import (
    AlreadyExistsError,
    Bookmark,
    Client,
    ConflictError,
    EventRecorder,
    Informer,
    InvalidError,
    LeaderElector,
    LeaseFollower,
    NotFoundError,
    ref_of,
)
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import CONFIG_MAPS, EVENTS, LEASES, PODS, untyped_resource

LIMIT_RANGES = untyped_resource("", "v1", "limitranges", "LimitRange")

Check = Callable[[Client, str], Awaitable[None]]


def config_map(name: str, namespace: str, **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"test": "purser"}}, "data": data}


def pod(name: str, namespace: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"cpu": "1500m"}}}],
        },
    }


async def objects_are_created_read_and_deleted(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", namespace, key="1"))
    assert made.metadata.uid
    with pytest.raises(AlreadyExistsError):
        await client.create(CONFIG_MAPS, config_map("a", namespace))
    assert (await client.get(CONFIG_MAPS, "a", namespace)).data == {"key": "1"}
    with pytest.raises(ConflictError):
        await client.delete(CONFIG_MAPS, "a", namespace, uid="another")
    await client.delete(CONFIG_MAPS, "a", namespace, uid=made.metadata.uid)
    with pytest.raises(NotFoundError):
        await client.get(CONFIG_MAPS, "a", namespace)
    with pytest.raises(InvalidError) as caught:
        await client.create(CONFIG_MAPS, config_map("Not A Name", namespace))
    assert caught.value.details["causes"][0]["field"] == "metadata.name"


async def lists_come_in_pages(client: Client, namespace: str) -> None:
    for number in range(5):
        await client.create(CONFIG_MAPS, config_map(f"page-{number}", namespace))
    found = await client.list(CONFIG_MAPS, namespace, label_selector="test=purser")
    assert [item.metadata.name for item in found.items] == [f"page-{number}" for number in range(5)]
    one = await client.list(CONFIG_MAPS, namespace, field_selector="metadata.name=page-3")
    assert [item.metadata.name for item in one.items] == ["page-3"]
    raw = await client.list(CONFIG_MAPS.raw(), namespace, field_selector="metadata.name=page-3")
    assert raw.items[0]["kind"] == "ConfigMap"
    assert int(found.resource_version) > 0


async def applied_fields_have_an_owner(client: Client, namespace: str) -> None:
    await client.apply(CONFIG_MAPS, config_map("a", namespace, key="1"))
    async with Client(client.config, field_manager="other") as other:
        with pytest.raises(ConflictError) as caught:
            await other.apply(CONFIG_MAPS, config_map("a", namespace, key="2"))
        assert "data.key" in str(caught.value.details)
        assert (await other.apply(CONFIG_MAPS, config_map("a", namespace, key="2"), force=True)).data == {"key": "2"}


async def patches_and_replacements_lock_optimistically(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS.raw(), config_map("a", namespace, key="1", more="x"))
    first = made["metadata"]["resourceVersion"]
    patched = await client.patch_merge(CONFIG_MAPS, "a", {"data": {"key": "2", "more": None}}, namespace)
    assert patched.data == {"key": "2"}
    stale = {"metadata": {"resourceVersion": first}, "data": {"key": "3"}}
    with pytest.raises(ConflictError):
        await client.patch_merge(CONFIG_MAPS, "a", stale, namespace)
    with pytest.raises(ConflictError):
        await client.replace(CONFIG_MAPS.raw(), made)
    test = {"op": "test", "path": "/data/key", "value": "2"}
    change = {"op": "replace", "path": "/data/key", "value": "4"}
    assert (await client.patch_json(CONFIG_MAPS, "a", [test, change], namespace)).data == {"key": "4"}
    with pytest.raises(InvalidError):
        await client.patch_json(CONFIG_MAPS, "a", [test, change], namespace)
    whole = await client.get(CONFIG_MAPS.raw(), "a", namespace)
    assert (await client.replace(CONFIG_MAPS.raw(), whole | {"data": {}})).get("data", {}) == {}


async def a_binding_brings_node_and_annotations_in_one_write(client: Client, namespace: str) -> None:
    made = await client.create(PODS, pod("a", namespace))
    assert made.spec.containers[0].resources.limits == {"cpu": "1500m"}
    if (await client.version())["minor"] != "20":  # which does not look at a Binding's uid yet
        with pytest.raises(ConflictError):
            await client.bind(namespace, "a", "another-uid", "nowhere", {})
    informer = Informer(client, PODS, namespace)
    seen = []
    informer.add_handler(on_update=lambda old, new: seen.append((new.spec.node_name, new.metadata.annotations)))
    async with running(informer.run()):
        await informer.synced()
        await client.bind(namespace, "a", made.metadata.uid, "nowhere", {"purser.dev/grant": "{}"})
        await eventually(lambda: seen)
    assert seen[0][0] == "nowhere"
    assert seen[0][1]["purser.dev/grant"] == "{}"
    with pytest.raises(ConflictError):
        await client.bind(namespace, "a", made.metadata.uid, "elsewhere", {})
    await client.delete(PODS, "a", namespace, grace_period_seconds=0)


async def an_informer_follows_every_change(client: Client, namespace: str) -> None:
    informer = Informer(client, CONFIG_MAPS, namespace, label_selector="test=purser")
    told = []
    informer.add_handler(
        lambda new: told.append(("add", new.metadata.name)),
        lambda old, new: told.append(("update", new.metadata.name)),
        lambda last: told.append(("delete", last.metadata.name)),
    )
    await client.create(CONFIG_MAPS, config_map("before", namespace))
    async with running(informer.run()):
        await informer.synced()
        await client.create(CONFIG_MAPS, config_map("a", namespace))
        await client.patch_merge(CONFIG_MAPS, "a", {"data": {"big": "x" * 700_000}}, namespace)
        await client.patch_merge(CONFIG_MAPS, "before", {"metadata": {"labels": {"test": None}}}, namespace)
        await client.delete(CONFIG_MAPS, "a", namespace)
        await eventually(lambda: len(told) == 5)
        await client.create(CONFIG_MAPS, config_map("b", namespace))
        await informer.wait_for_relist()
        assert list(informer.store) == [f"{namespace}/b"]
    assert told[:5] == [("add", "before"), ("add", "a"), ("update", "a"), ("delete", "before"), ("delete", "a")]


async def a_watch_can_be_asked_to_end(client: Client, namespace: str) -> None:
    found = await client.list(CONFIG_MAPS, namespace)
    async with client.watch(
        CONFIG_MAPS, namespace, resource_version=found.resource_version, timeout_seconds=1
    ) as events:
        assert [event async for event in events if not isinstance(event, Bookmark)] == []


async def a_lease_is_acquired_renewed_followed_and_freed(client: Client, namespace: str) -> None:
    elector = LeaderElector(client, namespace, "leader", "host_1", lease_duration=3, renew_deadline=2, retry_period=0.2)
    follower = LeaseFollower(client, namespace, "leader", "host")
    informer = Informer(client, LEASES, namespace)
    renewals = set()
    informer.add_handler(on_update=lambda old, new: renewals.add(new.spec.renew_time))
    async with running(follower.run(), informer.run()):
        async with running(elector.run()):
            await asyncio.wait_for(elector.wait_until_acquired(), 10)
            await eventually(lambda: follower.is_held_here)
            await eventually(lambda: len(renewals) >= 2)
        lease = await client.get(LEASES, "leader", namespace)
        assert lease.spec.holder_identity == ""
        await eventually(lambda: not follower.is_held_here)


async def events_are_posted_and_counted(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", namespace))
    async with EventRecorder(client, "purser-test", "t-1") as recorder:
        for _ in range(3):
            recorder.event(ref_of(CONFIG_MAPS, made), "Tested", "The test was here.")
    assert recorder.dropped == 0
    (event,) = (await client.list(EVENTS, namespace, field_selector="involvedObject.name=a")).items
    assert (event.reason, event.count, event.reporting_component) == ("Tested", 3, "purser-test")


async def a_dry_run_says_what_would_be_created_and_stores_nothing(client: Client, namespace: str) -> None:
    def asked(kind: str = "Pod", **spec: object) -> ManifestPod:
        body = pod("p", namespace)
        return ManifestPod(kind, namespace, "p", {"metadata": {"name": "p"}, "spec": {**body["spec"], **spec}})

    async def limits(**bounds: object) -> None:
        spec = {"limits": [{"type": "Container", **bounds}]}
        await client.create(LIMIT_RANGES, {"metadata": {"name": "bounds"}, "spec": spec}, namespace)

    answer = await dry_run(client, asked(), namespace)
    assert (answer.refusal, answer.unknown, answer.exists) == ("", "", False)
    assert answer.pod is not None and answer.pod.metadata.name == "p"
    refused = await dry_run(client, asked(priorityClassName="none"), namespace)
    assert refused.refusal == 'pods "p" is forbidden: no PriorityClass with name none was found'
    await limits(max={"cpu": "1"})
    refused = await dry_run(client, asked("Deployment"), namespace)
    assert refused.refusal.endswith("is forbidden: maximum cpu usage per Container is 1, but limit is 1500m")
    await client.delete(LIMIT_RANGES, "bounds", namespace)
    await limits(defaultRequest={"memory": "7Mi"}, default={"memory": "9Mi"})
    filled = await dry_run(client, asked(), namespace)
    assert filled.pod is not None and filled.pod.spec.containers[0].resources.requests["memory"] == "7Mi"
    await client.create(PODS, pod("p", namespace))
    assert (await dry_run(client, asked(), namespace)).exists
    assert [each.metadata.name for each in (await client.list(PODS, namespace)).items] == ["p"]
    hard = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    await client.create(RESOURCE_QUOTAS, hard, namespace)
    async with asyncio.timeout(60):  # until kube-controller-manager has counted what there is
        while "exceeded quota: few, requested: pods=1, used: pods=1" not in refused.refusal:
            refused = await dry_run(client, asked("Job"), namespace)


CHECKS: tuple[Check, ...] = (
    objects_are_created_read_and_deleted,
    lists_come_in_pages,
    applied_fields_have_an_owner,
    patches_and_replacements_lock_optimistically,
    a_binding_brings_node_and_annotations_in_one_write,
    an_informer_follows_every_change,
    a_watch_can_be_asked_to_end,
    a_lease_is_acquired_renewed_followed_and_freed,
    events_are_posted_and_counted,
    a_dry_run_says_what_would_be_created_and_stores_nothing,
)
