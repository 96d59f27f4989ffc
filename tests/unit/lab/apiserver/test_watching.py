"""One watcher's stream."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from purser.lab.apiserver.cluster import Cluster
from purser.lab.apiserver.store import Selection
from purser.lab.apiserver.views import ResourceView
from purser.lab.apiserver.watching import Watch, WatchOptions


def config_map(name: str) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "uid": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(history=100)


def options(seconds: float, *, bookmarks: bool, mark_initial: bool = False) -> WatchOptions:
    return WatchOptions(since=None, initial=True, mark_initial=mark_initial, bookmarks=bookmarks, seconds=seconds)


def watch_of(cluster: Cluster) -> Watch:
    resource = cluster.registry.get("", "v1", "configmaps")
    assert resource
    return Watch(cluster, ResourceView(resource), Selection(), since=None, initial=True)


def put(cluster: Cluster, name: str) -> None:
    cluster.store.collections["configmaps"].put(config_map(name))


async def events(lines: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) async for chunk in lines for line in chunk.splitlines()]


def types(seen: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in seen]


async def test_bookmarks_come_at_each_interval_and_at_the_end(cluster: Cluster) -> None:
    watch = watch_of(cluster)
    seen = await events(watch.lines(options(0.05, bookmarks=True), 0.02))
    assert len(seen) >= 2 and set(types(seen)) == {"BOOKMARK"}


async def test_nothing_is_lost_between_the_list_and_the_stream(cluster: Cluster) -> None:
    put(cluster, "before")
    watch = watch_of(cluster)
    put(cluster, "between")
    lines = watch.lines(options(0.1, bookmarks=False), 60)
    first = json.loads((await anext(lines)).splitlines()[0])
    put(cluster, "after")
    rest = await events(lines)
    assert first["object"]["metadata"]["name"] == "before"
    assert "after" in [event["object"]["metadata"]["name"] for event in rest]


async def test_a_reader_that_falls_too_far_behind_is_cut_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("purser.lab.apiserver.watching._BACKLOG", 3)
    watch = watch_of(cluster)
    for number in range(5):
        put(cluster, str(number))
    seen = await events(watch.lines(options(60, bookmarks=True), 60))
    assert types(seen) == ["ADDED"] * 3, "no bookmark may claim that all was sent"


async def test_a_bookmark_never_overtakes_a_change(cluster: Cluster) -> None:
    watch = watch_of(cluster)
    lines = watch.lines(options(0.1, bookmarks=True, mark_initial=True), 0.01)
    latest = 0
    number = 0
    async for chunk in lines:
        for line in chunk.splitlines():
            event = json.loads(line)
            version = int(event["object"]["metadata"]["resourceVersion"])
            assert version > latest or event["type"] == "BOOKMARK"
            latest = max(latest, version)
        put(cluster, f"m{number}")
        number += 1
    assert number > 2
