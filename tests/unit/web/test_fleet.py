"""Tiles of a state document, and the events that keep a browser's copy of them the same."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.top.states import cluster, gpu, grant, node

from purser.core.model import ContainerKind
from purser.core.state import StateContainer, StateGpuHealth, StateShare
from purser.web.feed import Feed
from purser.web.fleet import difference, fleet_of, summary_of

from .pages import Browser, PageClock, Source, following


def part(pod, memory, of="GPU-0", kind=ContainerKind.APP):
    return StateContainer(pod, kind, "none", (StateShare(of, 0, memory, 0, ""),))


def test_each_pod_is_a_part_of_its_gpu():
    (tile,) = fleet_of(cluster((node("n", gpu(held=300)),), (grant("a"), grant("b", memory=200))))["n"].gpus
    assert tile.state.pods[:2] == (("default", "a", 100, 0), ("default", "b", 200, 0))


def test_an_init_container_and_an_app_of_a_pod_count_once():
    both = msgspec.structs.replace(
        grant("a"), containers=(part("init", 300, kind=ContainerKind.INIT), part("app", 100))
    )
    (tile,) = fleet_of(cluster((node("n", gpu(held=300)),), (both,)))["n"].gpus
    assert tile.state.pods == (("default", "a", 300, 0),)


def test_what_pods_hold_that_the_viewer_may_not_see_is_one_part_without_a_name():
    device = msgspec.structs.replace(gpu(held=700), pods=3)
    (tile,) = fleet_of(cluster((node("n", device),), (grant("mine"),)))["n"].gpus
    assert tile.state.pods == (("default", "mine", 100, 0), ("", "", 600, 0))


def test_unhealthy_and_disputed_gpus_are_counted_together():
    gpus = [gpu(place, health=health) for place, health in enumerate(StateGpuHealth)]
    found = summary_of(cluster((node("n", *gpus),)))
    assert (found.gpus, found.unhealthy, found.cordoned) == (4, 2, 1)
    found = summary_of(cluster((node("n", *gpus, cordoned=True),)))
    assert (found.gpus, found.unhealthy, found.cordoned) == (4, 2, 2)


def test_a_node_that_moves_to_another_rack_is_sent_anew():
    before = msgspec.structs.replace(node("n"), topology={"example.com/rack": "a"})
    now = msgspec.structs.replace(before, topology={"example.com/rack": "b"})
    drained = msgspec.structs.replace(before, upgrade="drain-required")
    assert difference(fleet_of(cluster((before,))), fleet_of(cluster((drained,)))).nodes[0].maintenance
    change = difference(fleet_of(cluster((before, node("m")))), fleet_of(cluster((now, node("m")))))
    assert [(each.name, each.topology) for each in change.nodes] == [("n", {"example.com/rack": "b"})]


def test_a_pod_that_starts_changes_one_gpu():
    before = fleet_of(cluster((node("n", gpu(0), gpu(1)),)))
    now = fleet_of(cluster((node("n", gpu(0, held=100), gpu(1)),), (grant("a"),)))
    change = difference(before, now)
    assert (change.nodes, change.gone) == ([], [])
    assert [(name, place) for name, place, _ in change.gpus] == [("n", 0)]


gpus = st.builds(
    gpu,
    st.integers(0, 3),
    held=st.sampled_from([0, 100, 500]),
    health=st.sampled_from(StateGpuHealth),
    uuid=st.sampled_from(["", "GPU-A", "GPU-B"]),
)
nodes = st.builds(
    lambda name, gpus, cordoned: node(name, *gpus, cordoned=cordoned),
    st.sampled_from("abc"),
    st.lists(gpus, min_size=1, max_size=3),
    st.booleans(),
)
states = st.builds(
    lambda nodes, pods: cluster(tuple(nodes), tuple(grant(pod, "a") for pod in pods)),
    st.lists(nodes, max_size=3, unique_by=lambda each: each.name),
    st.lists(st.sampled_from("pqr"), max_size=3, unique=True),
)


@given(st.lists(states, min_size=1, max_size=6), st.integers(0, 5))
async def test_a_browser_that_reads_the_events_has_the_fleet(history, joins_at):
    source = Source(history[0])
    async with following(source) as feed:
        early, late = Browser(), Browser()
        early_has = late_has = 0
        for number, state in enumerate(history):
            source.show(state)
            while feed.state is not state:
                await feed.wait_for_newer(feed.version)
            early.read(b"".join(feed.events_after(early_has)).decode())
            early_has = feed.version
            if number >= joins_at:
                late.read(b"".join(feed.events_after(late_has)).decode())
                late_has = feed.version
            expected = {name: json.loads(msgspec.json.encode(each)) for name, each in fleet_of(state).items()}
            assert early.nodes == expected
            if number >= joins_at:
                assert late.nodes == expected


async def test_who_is_too_far_behind_gets_the_whole_fleet(monkeypatch):
    monkeypatch.setattr("purser.web.feed.MAX_KEPT_BYTES", 2000)
    source = Source(cluster((node("n"),)))
    async with following(source) as feed:
        behind = feed.version
        for number in range(20):
            source.show(cluster((node("n", gpu(held=number)),)))
            await feed.wait_for_newer(feed.version)
        assert feed.events_after(behind)[0].startswith(b"event: reset")
        assert not b"".join(feed.events_after(feed.version - 1)).startswith(b"event: reset")
        assert feed.events_after(feed.version) == []


async def test_readers_that_join_while_a_large_fleet_changes_share_one_copy_of_it():
    nodes = [node(f"n-{number}") for number in range(50)]
    source = Source(cluster(tuple(nodes)))
    async with following(source) as feed:
        copies = set()
        for number in range(10):
            source.show(cluster((*nodes, node("one", gpu(held=number)))))
            await feed.wait_for_newer(feed.version)
            events = feed.events_after(0)
            copies.add(id(events[1]))
            browser = Browser()
            browser.read(b"".join(events).decode())
            assert len(browser.nodes) == 51
            assert browser.nodes["one"]["gpus"][0]["state"]["memory_mib"] == number
        assert len(copies) == 1


async def test_who_joins_a_small_fleet_is_not_sent_its_history():
    source = Source(cluster((node("n"),)))
    async with following(source) as feed:
        for number in range(100):
            source.show(cluster((node("n", gpu(held=number)),)))
            await feed.wait_for_newer(feed.version)
        assert len(b"".join(feed.events_after(0))) < 3000


async def test_a_problem_of_the_source_is_in_the_status():
    source = Source()
    async with following(source) as feed:
        source.show(problem="not up to date: the API server is away")
        await feed.wait_for_newer(feed.version)
        browser = Browser()
        browser.read(b"".join(feed.events_after(0)).decode())
        assert browser.status["problem"] == "not up to date: the API server is away"


async def test_what_the_source_raises_ends_the_feed():
    source = Source()
    feed = Feed(source, PageClock())
    source.fail(ValueError("no cluster"))
    try:
        await feed.run()
    except ValueError as error:
        assert str(error) == "no cluster"
    else:
        raise AssertionError("the feed goes on without its source")
