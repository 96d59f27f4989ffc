"""One pod, and the events about one object, read from an API server for those who look at it."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
from tests.unit.kube.servers import ManualClock

from purser.core.state import PodDetails, StateEvents
from purser.kube import Client, ClusterConfig, KubeError
from purser.kube.resources import EVENTS, NAMESPACES, PODS
from purser.lab.apiserver import ApiServer
from purser.scheduler.read_api import ObjectPage, objects

NAMESPACE = "team-a"


class Cache:
    """Of the pods that have a name with ``gpu`` in it, it is known that they ask for GPUs."""

    readings = SimpleNamespace(of=lambda pod: SimpleNamespace(asks_for_devices="gpu" in pod))

    def pod(self, _namespace, name):
        return name


@asynccontextmanager
async def paged():
    async with ApiServer(tls=False) as api, Client(ClusterConfig.insecure(api.url, api.admin_token)) as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        clock = ManualClock()
        yield ObjectPage(client, Cache(), clock), client, clock


def read(document, type_):
    return msgspec.json.decode(b"".join(document.pieces), type=type_)


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}


def event(name, about, message):
    involved = {"kind": "Pod", "namespace": NAMESPACE, "name": about, "uid": f"uid-{about}"}
    return {
        "metadata": {"name": name, "annotations": {"large": "x" * 1000}},
        "involvedObject": involved,
        "reason": "Pulled",
        "message": message,
        "type": "Normal",
        "source": {"component": "kubelet"},
        "lastTimestamp": "2027-01-15T08:00:00Z",
    }


async def test_a_pod_has_its_steps_and_one_without_gpus_is_not_shown():
    async with paged() as (page, client, _):
        for name in ("gpu", "cpu"):
            await client.create(PODS, pod(name), NAMESPACE)
        found = read(await page.pod(NAMESPACE, "gpu"), PodDetails)
        assert (found.name, found.steps[0].name, bool(found.uid)) == ("gpu", "Created", True)
        assert await page.pod(NAMESPACE, "cpu") is None
        assert await page.pod(NAMESPACE, "gpu-that-has-gone") is None


async def test_events_are_those_about_the_object_alone_and_read_once_for_a_while():
    async with paged() as (page, client, clock):
        for number, about in enumerate(("p", "q", "p")):
            await client.create(EVENTS, event(f"e{number}", about, f"{number}"), NAMESPACE)
        first = await page.events(NAMESPACE, {"kind": "Pod", "name": "p"})
        assert b"large" not in b"".join(first.pieces)
        assert sorted(each.message for each in read(first, StateEvents).events) == ["0", "2"]
        assert read(first, StateEvents).events[0].component == "kubelet"
        (alone,) = read(await page.events(NAMESPACE, {"uid": "uid-q"}), StateEvents).events
        assert (alone.message, alone.seen_at) == ("1", "2027-01-15T08:00:00Z")
        await client.delete(EVENTS, "e0", NAMESPACE)
        assert await page.events(NAMESPACE, {"name": "p", "kind": "Pod"}) is first
        clock.advance(60)
        assert (await page.events(NAMESPACE, {"kind": "Pod", "name": "p"})).tag != first.tag


@pytest.mark.parametrize("query", [{}, {"other": "x"}, {"uid": ""}, {"uid": "u,type=Normal"}, {"name": "a" * 254}])
async def test_a_query_names_an_object(query):
    assert await ObjectPage(None, Cache(), ManualClock()).events(NAMESPACE, query) is None


async def test_an_api_server_that_does_not_answer_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(objects, "READ_TIMEOUT_S", 0.01)

    async def never(*_, **__):
        await asyncio.Event().wait()

    page = ObjectPage(SimpleNamespace(get=never, list=never), Cache(), ManualClock())
    for asking in (page.pod(NAMESPACE, "gpu"), page.events(NAMESPACE, {"uid": "u"})):
        with pytest.raises(KubeError, match=r"did not answer within 0\.01 s"):
            await asking
