import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.kube.servers import (
    HastyClock,
    ManualClock,
    ModelServer,
    client_of,
    eventually,
    line,
    listing,
    pod,
    refuse,
    running,
    serving,
    status,
)

from purser.kube import ApiUnavailableError, Client, ClusterConfig, Informer
from purser.kube import informer as informer_module
from purser.kube.backoff import Backoff
from purser.kube.resources import NODES, PODS


def informer_of(client, resource=PODS, **options):
    return Informer(client, resource, "ns", backoff=Backoff(0.001, 0.01), **options)


@asynccontextmanager
async def following(handle, resource=PODS, **options):
    """An informer at work, of what ``handle`` serves."""
    async with client_of(handle) as client:
        informer = informer_of(client, resource, **options)
        async with running(informer.run()):
            yield informer


class Witness:
    """Handlers that believe only what they are called with, and object when it makes no sense."""

    def __init__(self, informer):
        self.known = {}
        self.told = []
        self.informer = informer
        informer.add_handler(self.add, self.update, self.delete)

    def add(self, new):
        assert new.metadata.name not in self.known
        assert self.informer.store[f"ns/{new.metadata.name}"] is new
        self.known[new.metadata.name] = new
        self.told.append(("add", new.metadata.name))

    def update(self, old, new):
        assert self.known[old.metadata.name] is old
        assert old.metadata.uid == new.metadata.uid
        self.known[new.metadata.name] = new
        self.told.append(("update", new.metadata.name))

    def delete(self, last):
        assert self.known.pop(last.metadata.name).metadata.uid == last.metadata.uid
        assert f"ns/{last.metadata.name}" not in self.informer.store
        self.told.append(("delete", last.metadata.name))


class Script:
    """Lists and watches answered in the order given; watches given as chunks, then held open or ended."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.queries = []

    async def handle(self, request):
        self.queries.append(dict(request.query))
        answer = self.answers.pop(0) if self.answers else HOLD
        return answer if isinstance(answer, web.Response) else await self._stream(request, *answer)

    async def _stream(self, request, *chunks):
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            if chunk is ...:
                await asyncio.Event().wait()
            await response.write(chunk)
            await asyncio.sleep(0)
        return response


HOLD = (...,)


def versions(informer):
    return {key: obj.metadata.resource_version for key, obj in informer.store.items()}


async def test_the_store_holds_every_page_and_the_watch_starts_at_the_first_pages_version():
    script = Script(listing([pod("a")], 5, "next"), listing([pod("b")], 9), HOLD)
    async with following(script.handle) as informer:
        await informer.synced()
        await eventually(lambda: len(script.queries) == 3)
    assert sorted(informer.store) == ["ns/a", "ns/b"]
    assert script.queries[0]["limit"] == "500" and "resourceVersion" not in script.queries[0]
    assert script.queries[1]["continue"] == "next"
    watch = script.queries[2]
    assert watch["resourceVersion"] == "5" and watch["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch["timeoutSeconds"]) <= 600


async def test_changes_reach_the_store_by_key_and_uid_and_the_handlers_in_order():
    script = Script(
        listing([pod("a", 1)], 5),
        (line("ADDED", pod("b", 6)) + line("MODIFIED", pod("a", 7)) + line("DELETED", pod("b", 8)), ...),
    )
    async with following(script.handle) as informer:
        witness = Witness(informer)
        await eventually(lambda: len(witness.told) == 4)
    assert witness.told == [("add", "a"), ("add", "b"), ("update", "a"), ("delete", "b")]
    assert versions(informer) == {"ns/a": "7"}
    assert informer.store.by_uid("uid-a") is informer.store["ns/a"]
    assert informer.store.by_uid("uid-b") is None


@pytest.mark.parametrize(
    "gone",
    [refuse(410, "Expired"), refuse(410, "Gone"), (line("ERROR", status(410, "Expired")),)],
    ids=["as an HTTP status", "with the older reason", "inside the stream"],
)
async def test_a_version_that_is_gone_leads_to_a_list_and_to_deletions_of_what_it_lacks(gone):
    script = Script(listing([pod("a", 1), pod("b", 2)], 5), gone, listing([pod("a", 1), pod("c", 6)], 9))
    async with following(script.handle) as informer:
        witness = Witness(informer)
        await eventually(lambda: len(script.queries) == 4)
    assert witness.told == [("add", "a"), ("add", "b"), ("delete", "b"), ("add", "c")]
    assert script.queries[3]["resourceVersion"] == "9"


async def test_an_object_of_the_same_name_with_another_uid_is_a_deletion_and_an_addition():
    script = Script(listing([pod("a", 1)], 5), refuse(410, "Gone"), listing([pod("a", 6, uid="other")], 9), HOLD)
    async with following(script.handle) as informer:
        witness = Witness(informer)
        await eventually(lambda: len(witness.told) == 3)
    assert witness.told == [("add", "a"), ("delete", "a"), ("add", "a")]
    assert informer.store.by_uid("uid-a") is None
    assert informer.store.by_uid("other") is not None


async def test_a_watch_that_ends_goes_on_from_the_last_version_seen_bookmarks_included():
    bookmark = line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "42", "creationTimestamp": None}})
    script = Script(listing([], 5), (line("ADDED", pod("a", 6)),), (bookmark,), HOLD)
    async with following(script.handle) as informer:
        await eventually(lambda: len(script.queries) == 4)
    assert [query.get("resourceVersion") for query in script.queries] == [None, "5", "6", "42"]
    assert sorted(informer.store) == ["ns/a"]


async def test_a_silent_connection_is_given_up_and_resumed_without_a_list():
    # As often as it is asked: where this process stands still, a connection that speaks seems silent as well.
    speaking = [(line("MODIFIED", pod("a", 6)), ...)] * 100
    script = Script(listing([pod("a")], 5), HOLD, *speaking)
    async with following(script.handle, inactivity_seconds=0.05) as informer:
        await eventually(lambda: versions(informer) == {"ns/a": "6"})
    assert "watch" in script.queries[1] and "watch" in script.queries[2]
    assert script.queries[2]["resourceVersion"] == "5"


async def test_lines_may_be_cut_anywhere_and_have_any_length():
    huge = pod("huge", 7, note="x" * 3_000_000)
    stream = line("ADDED", pod("a", 6)) + line("ADDED", huge) + b"\n" + line("ADDED", pod("ü", 8))
    cuts = [stream[:1], stream[1:50], stream[50:1_000_000], stream[1_000_000:-20], *(bytes([b]) for b in stream[-20:])]
    script = Script(listing([], 5), (*cuts, ...))
    async with following(script.handle) as informer:
        await eventually(lambda: len(informer.store) == 3)
    assert len(informer.store["ns/huge"].metadata.annotations["note"]) == 3_000_000
    assert "ns/ü" in informer.store


async def test_an_object_that_cannot_be_read_is_left_out_and_nothing_else():
    odd = {"metadata": {"name": "odd", "namespace": "ns", "labels": {"a": 1}}}
    nulls = {"metadata": pod("nulls")["metadata"] | {"labels": None}, "spec": {"containers": None}, "status": None}
    script = Script(listing([odd, nulls], 5), (line("ADDED", odd), line("NEWS", {}), line("ADDED", pod("a", 6)), ...))
    async with following(script.handle) as informer:
        await eventually(lambda: "ns/a" in informer.store)
    assert sorted(informer.store) == ["ns/a", "ns/nulls"]
    assert informer.store["ns/nulls"].spec.containers == ()


async def test_whole_objects_can_be_kept_as_well():
    odd = {"metadata": "not an object"}
    script = Script(listing([pod("a", spec="kept"), odd], 5), (line("ADDED", odd), line("ADDED", pod("b", 6)), ...))
    async with following(script.handle, PODS.raw()) as informer:
        await eventually(lambda: "ns/b" in informer.store)
    assert informer.store["ns/a"] == pod("a", spec="kept") | {"apiVersion": "v1", "kind": "Pod"}


async def test_a_handler_that_fails_stops_neither_the_others_nor_the_informer():
    script = Script(listing([pod("a")], 5), (line("ADDED", pod("b", 6)), ...))
    async with following(script.handle) as informer:
        informer.add_handler(on_add=lambda new: 1 / 0)
        witness = Witness(informer)
        await eventually(lambda: len(witness.told) == 2)


async def test_a_handler_added_late_gets_the_objects_that_exist():
    script = Script(listing([pod("a"), pod("b")], 5))
    async with following(script.handle) as informer:
        await informer.synced()
        assert [name for _, name in Witness(informer).told] == ["a", "b"]


async def test_failures_are_survived_and_not_answered_with_a_storm(monkeypatch):
    monkeypatch.setattr(informer_module, "_SHORT_WATCH_S", 60.0)  # on a busy machine a watch takes more than a second
    clock = HastyClock()
    forbidden = [refuse(403, "Forbidden") for _ in range(8)]
    broken = [web.Response(status=200, text="<html>") for _ in range(2)]
    at_once = [(), (), ()]
    script = Script(*forbidden, *broken, listing([], 5), *at_once, (line("ADDED", pod("a", 6)), ...))
    async with client_of(script.handle) as client:
        informer = Informer(client, PODS, "ns", clock=clock, backoff=Backoff(1.0, 30.0))
        async with running(informer.run()):
            await eventually(lambda: "ns/a" in informer.store)
    assert len(clock.slept) == 13
    for failures, delay in enumerate(clock.slept):
        whole = min(30.0, 2.0**failures)
        assert whole / 2 <= delay <= whole


async def test_health_says_whether_it_is_synced_and_connected():
    async def handle(request):
        if "watch" not in request.query:
            return listing([], 5)
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async with client_of(handle) as client:
        informer = informer_of(client)
        assert (informer.health.synced, informer.health.connected) == (False, False)
        async with running(informer.run()):
            await eventually(lambda: informer.health.connected)
            assert informer.health.synced
        assert not informer.health.connected


async def test_relist_returns_with_a_store_as_fresh_as_the_server():
    server = ModelServer()
    server.put("a")
    async with following(server.handle) as informer:
        await eventually(lambda: informer.health.connected)
        server._watches.clear()  # this watch tells nothing any more, and stays open
        server.put("b")
        server.delete("a")
        await asyncio.wait_for(informer.wait_for_relist(), 10)
        assert sorted(informer.store) == ["ns/b"]


async def test_relist_is_not_served_by_a_list_that_began_before():
    began, go_on = asyncio.Event(), asyncio.Event()
    lists = []

    async def handle(request):
        if "watch" in request.query:
            return await Script(HOLD).handle(request)
        lists.append(request)
        if len(lists) == 1:
            began.set()
            await go_on.wait()
            return listing([pod("old")], 5)
        return listing([pod("new")], 6)

    async with following(handle) as informer:
        await began.wait()
        fence = asyncio.create_task(informer.wait_for_relist())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(fence, 10)
        assert sorted(informer.store) == ["ns/new"]


async def test_relist_tries_at_once_while_the_informer_backs_off_and_outlasts_failures():
    server = ModelServer()
    server.put("a")
    server.failures = 1
    async with client_of(server.handle) as client:
        informer = Informer(client, PODS, "ns", clock=ManualClock(), backoff=Backoff(1000, 1000))
        async with running(informer.run()):
            await eventually(lambda: server.failures == 0)
            await asyncio.sleep(0)
            await asyncio.wait_for(informer.wait_for_relist(), 10)
            assert sorted(informer.store) == ["ns/a"]


async def test_relist_ends_with_an_error_when_the_informer_is_stopped():
    async def handle(request):
        await asyncio.Event().wait()

    async with following(handle) as informer:
        fence = asyncio.create_task(informer.wait_for_relist())
        await asyncio.sleep(0)
    with pytest.raises(ApiUnavailableError, match="stopped"):
        await fence


async def test_a_server_that_is_away_for_a_while_is_found_again():
    server = ModelServer()
    server.put("a")
    async with serving(server.handle) as url, Client(ClusterConfig.insecure(url)) as client:
        informer = informer_of(client)
        async with running(informer.run()):
            await eventually(lambda: informer.health.connected)
            server.failures = 10
            server.drop()
            await eventually(lambda: not informer.health.connected)
            server.put("b")
            await eventually(lambda: "ns/b" in informer.store)


async def test_cluster_scoped_objects_have_their_name_as_key():
    script = Script(listing([{"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}}], 5))
    async with client_of(script.handle) as client:
        informer = Informer(client, NODES)
        async with running(informer.run()):
            await informer.synced()
    assert list(informer.store) == ["n1"]


names = st.sampled_from("abcdef")
steps = st.one_of(
    st.tuples(st.sampled_from(["put", "put", "delete"]), names),
    st.tuples(st.sampled_from(["drop", "end", "compact", "expire", "bookmark", "pause", "fail", "relist"])),
)


TURNS = 20
"""Of the event loop, in a pause: the informer gets some of what was done, or all of it."""


@examples(60)
@given(script=st.lists(steps, max_size=40), seed=st.integers(0, 99))
def test_after_any_sequence_of_changes_and_faults_the_store_equals_the_server(script, seed):
    asyncio.run(_follow(script, seed))


async def _follow(script, seed):
    server = ModelServer(seed)
    async with client_of(server.handle) as client:
        informer = informer_of(client)
        witness = Witness(informer)
        async with running(informer.run()), asyncio.TaskGroup() as group:
            for name, *arguments in script:
                if name == "pause":
                    for _ in range(TURNS):
                        await asyncio.sleep(0)
                elif name == "fail":
                    server.failures += 2
                elif name == "relist":
                    group.create_task(asyncio.wait_for(informer.wait_for_relist(), 10))
                else:
                    getattr(server, name)(*arguments)
            wanted = {f"ns/{name}": body["metadata"]["resourceVersion"] for name, body in server.pods.items()}
            await eventually(lambda: versions(informer) == wanted and informer.health.connected)
        assert {key.removeprefix("ns/"): obj for key, obj in informer.store.items()} == witness.known
