"""One pod, and the events about one object, read from an API server for those who look at it."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
from tests.unit.kube.servers import ManualClock

from purser.core.state import PodDetails, StateEvents
from purser.kube import Client, ClusterConfig, KubeError
from purser.kube.object_events import MAX_EVENTS, MAX_MESSAGE
from purser.kube.objects import Pod
from purser.kube.resources import EVENTS, NAMESPACES, PODS
from purser.lab.apiserver import ApiServer
from purser.scheduler.read_api import ObjectPage, SharedReads, reads
from purser.scheduler.read_api.reads import MAX_READS_OF_A_USER_PER_S, MAX_READS_PER_S, TooManyReadsError

TEAMS = ("team-a", "team-b")


class Cache:
    """The pods that the scheduler has heard of; those with ``gpu`` in their names ask for GPUs."""

    readings = SimpleNamespace(of=lambda pod: SimpleNamespace(asks_for_devices="gpu" in pod.metadata.name))

    def __init__(self):
        self.pods = {}

    def pod(self, namespace, name):
        return self.pods.get((namespace, name))


class World:
    def __init__(self, client):
        self.client, self.cache, self.clock, self.reads = client, Cache(), ManualClock(), 0
        self.page = ObjectPage(client, self.cache, SharedReads(self.clock))

    async def pod(self, name, namespace="team-a", **fields):
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}, **fields}
        made = await self.client.create(PODS, body, namespace)
        self.cache.pods[namespace, name] = made
        return made

    async def event(self, about, message, namespace="team-a", **fields):
        involved = {"kind": "Pod", "namespace": namespace, "name": about, "uid": f"uid-{about}"}
        body = {
            "metadata": {"generateName": "e-", "annotations": {"large": "x" * 1000}},
            "involvedObject": involved,
            "reason": "Pulled",
            "message": message,
            "type": "Normal",
            "source": {"component": "kubelet"},
            "lastTimestamp": "2027-01-15T08:00:00Z",
            **fields,
        }
        await self.client.create(EVENTS, body, namespace)

    async def messages(self, namespace="team-a", user="jane", **query):
        found = await self.page.events(namespace, query, user)
        return None if found is None else [each.message for each in read(found, StateEvents).events]


@asynccontextmanager
async def world():
    async with ApiServer(tls=False) as api, Client(ClusterConfig.insecure(api.url, api.admin_token)) as client:
        for name in TEAMS:
            await client.create(NAMESPACES, {"metadata": {"name": name}})
        made = World(client)

        async def note(request):
            made.reads += request.method == "GET"

        api.intercept(note)
        yield made


def read(document, type_):
    return msgspec.json.decode(b"".join(document.pieces), type=type_)


async def test_a_pod_has_its_steps_and_others_than_those_with_gpus_are_not_shown():
    async with world() as it:
        for name in ("gpu", "cpu", "gpu-old"):
            await it.pod(name)
        found = read(await it.page.pod("team-a", "gpu", "jane"), PodDetails)
        assert (found.name, found.steps[0].name, found.uid) == (
            "gpu",
            "Created",
            it.cache.pods["team-a", "gpu"].metadata.uid,
        )
        assert await it.page.pod("team-a", "cpu", "jane") is None
        assert await it.page.pod("team-a", "unknown-gpu", "jane") is None
        ended = msgspec.convert({"metadata": {"name": "gpu-old"}, "status": {"phase": "Succeeded"}}, Pod)
        it.cache.pods["team-a", "gpu-old"] = ended
        assert await it.page.pod("team-a", "gpu-old", "jane") is None


async def test_pods_of_one_name_are_each_their_own():
    async with world() as it:
        for namespace in TEAMS:
            await it.pod("gpu", namespace)
        uids = [read(await it.page.pod(namespace, "gpu", "jane"), PodDetails).uid for namespace in TEAMS]
        assert uids == [it.cache.pods[namespace, "gpu"].metadata.uid for namespace in TEAMS]
        await it.client.delete(PODS, "gpu", "team-a", grace_period_seconds=0)
        known = it.cache.pods["team-a", "gpu"]
        await it.pod("gpu", "team-a")
        it.cache.pods["team-a", "gpu"] = known  # the watch is late
        it.clock.advance(60)
        assert await it.page.pod("team-a", "gpu", "jane") is None


async def test_events_are_those_about_the_object_alone_and_read_once_for_a_while():
    async with world() as it:
        for about, message in (("p", "first"), ("q", "other"), ("p", "last")):
            await it.event(about, message)
        await it.event("p", "theirs", "team-b")
        first = await it.page.events("team-a", {"kind": "Pod", "name": "p"}, "jane")
        assert b"large" not in b"".join(first.pieces)
        assert sorted(each.message for each in read(first, StateEvents).events) == ["first", "last"]
        assert read(first, StateEvents).events[0].component == "kubelet"
        assert await it.messages(uid="uid-q") == ["other"]
        assert await it.messages("team-b", kind="Pod", name="p") == ["theirs"]
        reads = it.reads
        await it.event("p", "late")
        assert await it.page.events("team-a", {"name": "p", "kind": "Pod", "more": "x"}, "joe") is first
        assert it.reads == reads
        it.clock.advance(60)
        assert "late" in await it.messages(kind="Pod", name="p")


async def test_events_are_counted_and_timed_by_their_series():
    async with world() as it:
        series = {"count": 12, "lastObservedTime": "2027-01-15T09:00:00.000000Z"}
        await it.event("p", "once", lastTimestamp="2027-01-15T08:30:00Z")
        timed = {"eventTime": "2027-01-15T08:00:00.500000Z", "lastTimestamp": None, "series": series}
        more = {"reportingComponent": "default-scheduler", "reportingInstance": "x", "action": "Scheduling"}
        await it.event("p", "often", **timed, **more)
        found = read(await it.page.events("team-a", {"uid": "uid-p"}, "jane"), StateEvents).events
        assert [(each.message, each.count) for each in found] == [("once", 1), ("often", 12)]
        assert found[1].seen_at.startswith("2027-01-15T09:00:00")


async def test_neither_many_events_nor_large_ones_are_kept():
    async with world() as it:
        for number in range(MAX_EVENTS + 5):
            text = f"{number:03} " + '"' * 100_000
            at = f"2027-01-15T08:{number:02}:00Z"
            await it.event("p", text, reason="R" * 10_000, source={"component": "c" * 10_000}, lastTimestamp=at)
        found = await it.page.events("team-a", {"uid": "uid-p"}, "jane")
        assert found.length < 300_000
        events = read(found, StateEvents).events
        assert [each.message[:3] for each in events] == [f"{number:03}" for number in range(5, MAX_EVENTS + 5)]
        assert {len(each.message) for each in events} == {MAX_MESSAGE}


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"other": "x"},
        {"uid": ""},
        {"kind": "Pod"},
        {"name": "p"},
        {"uid": "u,type=Normal"},
        {"kind": "Pod", "name": "a" * 254},
        {"uid": "", "kind": "Pod", "name": "p"},
    ],
)
async def test_a_query_names_an_object(query):
    assert await ObjectPage(None, Cache(), SharedReads(ManualClock())).events("team-a", query, "jane") is None


async def test_an_api_server_that_does_not_answer_keeps_nobody_waiting_and_is_not_asked_again_at_once(monkeypatch):
    monkeypatch.setattr(reads, "READ_TIMEOUT_S", 0.01)
    asked = []

    async def never(*_, **__):
        asked.append(1)
        await asyncio.Event().wait()

    async def no_pages(*_, **__):
        await never()
        yield ()

    cache = Cache()
    cache.pods["team-a", "gpu"] = msgspec.convert({"metadata": {"name": "gpu", "uid": "u"}}, Pod)
    page = ObjectPage(SimpleNamespace(get=never, pages=no_pages), cache, SharedReads(ManualClock()))
    for ask in (lambda: page.pod("team-a", "gpu", "jane"), lambda: page.events("team-a", {"uid": "u"}, "jane")):
        before = len(asked)
        for _ in range(3):
            with pytest.raises(KubeError, match=r"did not answer within 0\.01 s"):
                await ask()
        assert len(asked) == before + 1


async def test_many_questions_are_not_passed_on_to_the_api_server():
    async with world() as it:
        for number in range(MAX_READS_OF_A_USER_PER_S):
            assert await it.messages(uid=f"u{number}") == []
        with pytest.raises(TooManyReadsError):
            await it.messages(uid="one-more")
        assert await it.messages(uid="u0") == [], "what is known is not asked for"
        others = [f"user-{number}" for number in range(MAX_READS_PER_S - MAX_READS_OF_A_USER_PER_S)]
        for user in others:
            assert await it.messages(user=user, uid=f"of-{user}") == []
        with pytest.raises(TooManyReadsError):
            await it.messages(user="late", uid="late")
        it.clock.advance(1)
        assert await it.messages(user="late", uid="late") == []
