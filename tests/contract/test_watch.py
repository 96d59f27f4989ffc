"""Watches: what informers rely on."""

import asyncio

import pytest

from purser.lab.apiserver import ApiServer

from .client import Api
from .objects import binding, config_map, pod


def seen(event: dict) -> tuple[str, str]:  # type: ignore[type-arg]
    return (event["type"], event["object"]["metadata"]["name"])


async def test_a_watch_from_a_list_sees_every_later_change_in_order(api: Api, ns: str) -> None:
    version = (await api.get(f"{ns}/secrets")).version
    await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}})
    async with api.watch(f"{ns}/secrets", resourceVersion=version) as watch:
        added = await watch.next()
        assert seen(added) == ("ADDED", "a")
        patched = await api.patch(f"{ns}/secrets/a", {"metadata": {"labels": {"x": "y"}}})
        changed = await watch.next()
        assert seen(changed) == ("MODIFIED", "a")
        assert changed["object"]["metadata"]["resourceVersion"] == patched.version
        await api.delete(f"{ns}/secrets/a")
        gone = await watch.next()
        assert seen(gone) == ("DELETED", "a")
        assert int(gone["object"]["metadata"]["resourceVersion"]) > int(patched.version)


async def test_watched_objects_are_whole(api: Api, ns: str) -> None:
    created = (await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}})).body
    before = str(int(created["metadata"]["resourceVersion"]) - 1)
    async with api.watch(f"{ns}/secrets", resourceVersion=before, fieldSelector="metadata.name=a") as watch:
        assert (await watch.next())["object"] == created


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api, ns: str, query: dict[str, str]) -> None:
    await api.post(f"{ns}/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": []}})
    async with api.watch(f"{ns}/limitranges", **query) as watch:
        assert seen(await watch.next()) == ("ADDED", "a")
        await api.post(f"{ns}/limitranges", {"metadata": {"name": "b"}, "spec": {"limits": []}})
        assert seen(await watch.next()) == ("ADDED", "b")


async def test_a_label_selector_turns_changes_into_additions_and_deletions(api: Api, ns: str) -> None:
    await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}})
    version = (await api.get(f"{ns}/secrets")).version
    async with api.watch(f"{ns}/secrets", resourceVersion=version, labelSelector="pick=yes") as watch:
        await api.patch(f"{ns}/secrets/a", {"metadata": {"labels": {"pick": "yes"}}})
        assert seen(await watch.next()) == ("ADDED", "a")
        await api.patch(f"{ns}/secrets/a", {"metadata": {"labels": {"other": "1"}}})
        assert seen(await watch.next()) == ("MODIFIED", "a")
        left = await api.patch(f"{ns}/secrets/a", {"metadata": {"labels": {"pick": "no"}}})
        event = await watch.next()
        assert seen(event) == ("DELETED", "a")
        assert event["object"]["metadata"]["labels"]["pick"] == "yes"
        assert event["object"]["metadata"]["resourceVersion"] == left.version


async def test_a_node_sees_a_pod_when_it_is_bound_to_it(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    await api.post(f"{ns}/pods", pod("b"))
    version = (await api.get(f"{ns}/pods")).version
    query = {"resourceVersion": version, "fieldSelector": "spec.nodeName=contract-node"}
    async with api.watch(f"{ns}/pods", **query) as watch:
        await api.post(f"{ns}/pods/b/binding", binding("b", "another-node"))
        await api.post(f"{ns}/pods/a/binding", binding("a", "contract-node"))
        assert seen(await watch.next()) == ("ADDED", "a")


async def test_the_time_limit_ends_the_watch_without_bookmarks_that_nobody_asked_for(api: Api, ns: str) -> None:
    async with api.watch(f"{ns}/limitranges", timeoutSeconds=1) as watch:
        assert await watch.rest() == []


async def test_bookmarks_come_before_the_end_and_carry_only_a_version(api: Api, ns: str) -> None:
    await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}})
    version = (await api.get(f"{ns}/secrets")).version
    seconds = 1 if api.embedded else 4  # a real server sends the last one about two seconds before the end
    query = {"resourceVersion": version, "allowWatchBookmarks": True, "timeoutSeconds": seconds}
    async with api.watch(f"{ns}/secrets", **query) as watch:
        created = await api.post(f"{ns}/secrets", {"metadata": {"name": "b"}})
        events = await watch.rest()
    assert [event["type"] for event in events if event["type"] != "BOOKMARK"] == ["ADDED"]
    bookmarks = [event["object"] for event in events if event["type"] == "BOOKMARK"]
    assert bookmarks and bookmarks[-1]["kind"] == "Secret"
    assert int(bookmarks[-1]["metadata"]["resourceVersion"]) >= int(created.version)
    assert "name" not in bookmarks[-1]["metadata"]


async def test_a_version_older_than_the_history_is_an_error_event(api: Api, ns: str, server: ApiServer | None) -> None:
    if server:
        await api.post(f"{ns}/configmaps", config_map("a"))
        server.drop_history()
    async with api.watch(f"{ns}/configmaps", resourceVersion=1) as watch:
        assert watch.status == 200
        event = await watch.next()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old resource version: 1 (" in status["message"] or "compacted" in status["message"]


async def test_a_version_that_is_no_number_is_refused(api: Api, ns: str) -> None:
    assert (await api.get(f"{ns}/configmaps", watch=True, resourceVersion="abc")).status in (400, 422, 500)


async def test_initial_events_end_with_a_marked_bookmark(api: Api, ns: str) -> None:
    if api.minor < 32 or api.minor == 33:  # the gate WatchList is off by default
        return
    await api.post(f"{ns}/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": []}})
    query = {"sendInitialEvents": True, "allowWatchBookmarks": True, "resourceVersionMatch": "NotOlderThan"}
    async with api.watch(f"{ns}/limitranges", **query) as watch:
        assert seen(await watch.next()) == ("ADDED", "a")
        bookmark = await watch.next()
        assert bookmark["type"] == "BOOKMARK"
        # 1.32 adds what an empty list looks like.
        assert bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"


async def test_a_watch_of_one_object_can_be_asked_by_name(api: Api, ns: str) -> None:
    await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}})
    await api.post(f"{ns}/secrets", {"metadata": {"name": "b"}})
    async with api.watch(f"{ns}/secrets", fieldSelector="metadata.name=b") as watch:
        assert seen(await watch.next()) == ("ADDED", "b")


async def test_many_watchers_see_the_same_changes(api: Api, ns: str) -> None:
    version = (await api.get(f"{ns}/secrets")).version

    async def follow() -> list[tuple[str, str]]:
        async with api.watch(f"{ns}/secrets", resourceVersion=version) as watch:
            return [seen(await watch.next()) for _ in range(6)]

    followers = [asyncio.create_task(follow()) for _ in range(8)]
    for number in range(3):
        await api.post(f"{ns}/secrets", {"metadata": {"name": f"s{number}"}})
        await api.delete(f"{ns}/secrets/s{number}")
    expected = [(kind, f"s{number}") for number in range(3) for kind in ("ADDED", "DELETED")]
    assert await asyncio.gather(*followers) == [expected] * 8


async def test_tables_can_be_watched(api: Api, ns: str) -> None:
    await api.post(f"{ns}/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": []}})
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = await api.request(
        "GET", f"{ns}/limitranges", headers=accept, watch=True, resourceVersion=0, timeoutSeconds=1
    )
    text = answer.body if isinstance(answer.body, dict) else None
    assert text is not None and text["object"]["kind"] == "Table"
    assert text["object"]["rows"][0]["cells"][0] == "a"
