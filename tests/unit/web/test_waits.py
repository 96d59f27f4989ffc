"""How long pods like a waiting one have waited that got through."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.top.states import cluster, gpu, grant, node, waiting

from purser.core.kubernetes.times import parsed, spelled
from purser.core.model import ContainerKind
from purser.core.state import StateAsk, StateContainer, StateShare
from purser.web.tables import waiting_groups
from purser.web.waits import MAX_CLOCK_SKEW_S, MAX_WAITS, wait_text, waits_of_groups, waits_of_pod

from .pages import Source, served
from .test_pages import text_of

GPU = "nvidia.com/gpu"
SHARE, WHOLE = StateAsk(GPU, False, 100), StateAsk(GPU, True)
FROM = 1_790_000_000


def got_through(name, waited_s=60, *, at=FROM, memory=100, cores=0, gpus=1, namespace="default", kinds=("app",)):
    """Created at a time, and taken by kubelet so many seconds later."""
    shares = tuple(StateShare(f"GPU-{index}", index, memory, cores, "") for index in range(gpus))
    parts = tuple(StateContainer(kind, ContainerKind(kind), "none", shares) for kind in kinds)
    return msgspec.structs.replace(
        grant(name), namespace=namespace, containers=parts, created=spelled(at), started=spelled(at + waited_s)
    )


def waits_for(asks=SHARE, gpus=1, name="w", reason="Reason"):
    return msgspec.structs.replace(waiting(name, reason), asks=asks, gpus=gpus)


NODE = node("n", gpu(0), gpu(1), msgspec.structs.replace(gpu(2), resource="nvidia.com/mig-1g.5gb", uuid="MIG"))


def found(grants, asks=SHARE, gpus=1):
    """Seconds that others waited."""
    waits = waits_of_pod(cluster((NODE,), tuple(grants), ()), waits_for(asks, gpus))
    return None if waits is None else waits.seconds


def test_half_waited_as_long_or_shorter():
    grants = [got_through(f"p-{waited}", waited, at=FROM - waited) for waited in (10, 20, 30, 400)]
    waits = waits_of_pod(cluster((NODE,), tuple(grants), ()), waits_for())
    assert (waits.median_s, waits.longest_s, waits.is_full) == (20, 400, False)


@pytest.mark.parametrize("asks", [None, StateAsk("nvidia.com/mig-1g.5gb", True), StateAsk(GPU, False, 201), WHOLE])
def test_where_no_pod_is_alike_nothing_is_said(asks):
    assert found([got_through("p")], asks) is None


@pytest.mark.parametrize(
    ("asks", "like", "unlike"),
    [
        (SHARE, [{"memory": 50}, {"memory": 200}, {"cores": 50}], [{"memory": 49}, {"memory": 201}, {"cores": 100}]),
        (WHOLE, [{"memory": 1000, "cores": 100}], [{"memory": 1000}, {"gpus": 2, "cores": 100}]),
        (StateAsk(GPU, False, 0, 40), [{"memory": 200}, {"memory": 800}], [{"memory": 190}, {"memory": 820}]),
    ],
    ids=["MiB", "whole", "percent"],
)
def test_which_pods_are_alike(asks, like, unlike):
    assert all(found([got_through("p", **each)], asks) == [60] for each in like)
    assert all(found([got_through("p", **each)], asks) is None for each in unlike)


@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_a_part_of_a_gpu_that_has_equal_parts_is_what_a_plain_request_gets(mode):
    parts = msgspec.structs.replace(gpu(0), mode=mode)
    state = cluster((node("n", parts),), (got_through("p", cores=0 if mode == "time-slicing" else 50),), ())
    waits = waits_of_pod(state, waits_for(WHOLE))
    assert waits is not None and waits.seconds == [60]


def test_gpus_are_those_that_containers_have_at_once():
    one_after_the_other, together = ("init", "app"), ("sidecar", "app")
    assert found([got_through("p", kinds=one_after_the_other)]) == [60]
    assert found([got_through("p", kinds=together)]) is None
    assert found([got_through("p", kinds=together)], gpus=2) == [60]


def test_the_newest_count():
    old = [got_through(f"old-{number}", 5000) for number in range(3)]
    new = [got_through(f"new-{number}", 7, at=FROM + 86400 + number) for number in range(MAX_WAITS)]
    assert found([*old, *new]) == [7] * MAX_WAITS
    assert found([*old, *new[1:]]) == [7] * (MAX_WAITS - 1) + [5000]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"created": ""}, None),
        ({"started": ""}, None),
        ({"created": "yesterday"}, None),
        ({"started": spelled(FROM - MAX_CLOCK_SKEW_S)}, [0]),
        ({"started": spelled(FROM - MAX_CLOCK_SKEW_S - 1)}, None),
    ],
    ids=["of an older scheduler", "on its way", "odd", "a clock that is late", "a clock that is wrong"],
)
def test_of_odd_times_nothing_is_made(changes, expected):
    assert found([msgspec.structs.replace(got_through("p"), **changes)]) == expected


def test_a_pod_on_gpus_that_no_node_lists_does_not_count():
    assert found([got_through("p", gpus=4)], gpus=4) is None


def test_of_a_group_the_most_common_requests_are_compared():
    sizes = [size for number, size in enumerate((10, 100, 1000, 10000), 1) for _ in range(number)]
    waits = tuple(waits_for(StateAsk(GPU, False, size), name=f"w-{n}") for n, size in enumerate(sizes))
    grants = [got_through(f"p-{memory}", memory=memory) for memory in (10, 100, 900)]
    state = cluster((NODE,), tuple(grants), waits)
    (each,) = waits_of_groups(state, waiting_groups(state))
    assert [one.kind.asks.memory_mib for one in each] == [1000, 100], "the most common has none, the rarest is left out"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1s"), (119, "119s"), (120, "2m"), (330, "5m30s"), (7200, "2h"), (7860, "2h11m"), (277200, "3d5h")],
)
def test_waits_are_told_in_two_units(seconds, text):
    assert wait_text(seconds) == text


@pytest.mark.parametrize(
    ("asks", "gpus", "words"),
    [
        (WHOLE, 1, "1 whole GPU"),
        (WHOLE, 2, "2 whole GPUs"),
        (StateAsk("nvidia.com/mig-1g.5gb", True), 1, "1 nvidia.com/mig-1g.5gb device"),
        (StateAsk(GPU, False, 4001), 1, "2,001 to 8,002 MiB of 1 GPU"),
        (StateAsk(GPU, False, 0, 60), 2, "30 to 100% of the memory of each of 2 GPUs"),
    ],
)
async def test_pages_say_what_they_compare(asks, gpus, words):
    amounts = {"memory": asks.memory_mib or 600, "cores": 100 if asks.whole else 0, "gpus": gpus}
    held = [got_through("p", 90, **amounts), got_through("q", 300, **amounts)]
    if asks.resource != GPU:
        shares = (StateShare("MIG", 0, 1000, 100, ""),)
        part = StateContainer("c", ContainerKind.APP, "none", shares)
        held = [msgspec.structs.replace(each, containers=(part,)) for each in held]
    async with served(Source(cluster((NODE,), tuple(held), (waits_for(asks, gpus),)))) as (client, _):
        for path in ("/waiting", "/pods/default/w"):
            text = await text_of(client, path)
            assert (
                f"Of the 2 pods known to hold {words} now, at least half had waited 90s or less, the longest 5m."
                in text
            )
            assert "Pods that have ended do not count; priorities" in text


async def test_where_all_waited_as_long_there_is_no_half():
    grants = (got_through("p"), got_through("q"))
    async with served(Source(cluster((NODE,), grants, (waits_for(),)))) as (client, _):
        text = await text_of(client, "/waiting")
        assert "Of the 2 pods known to hold 50 to 200 MiB of 1 GPU now, none had waited longer than 60s." in text


async def test_one_pod_is_no_half_and_none_is_not_mentioned():
    for grants, told in (((got_through("p"),), True), ((), False)):
        async with served(Source(cluster((NODE,), grants, (waits_for(),)))) as (client, _):
            for path in ("/waiting", "/pods/default/w"):
                text = await text_of(client, path)
                assert ("The only pod known to hold 50 to 200 MiB of 1 GPU now had waited 60s." in text) == told
                assert ("until kubelet took it" in text) == told


_grants = st.lists(
    st.builds(
        got_through,
        name=st.just("p"),
        waited_s=st.integers(-100, 9999),
        at=st.integers(FROM, FROM + 100_000),
        memory=st.sampled_from((50, 100, 400)),
        gpus=st.integers(1, 2),
        namespace=st.sampled_from(("a", "b")),
    ),
    max_size=40,
)


@given(_grants)
def test_what_is_said_follows_from_the_newest_alike(grants):
    """By another way: all that are alike, sorted."""
    seconds = found(grants)
    shares = [(each, each.containers[0].shares) for each in grants]
    alike = [each for each, held in shares if len(held) == 1 and held[0].memory_mib < 400]
    expected = []
    for each in sorted(alike, key=lambda one: one.started, reverse=True):
        waited = int(parsed(each.started) - parsed(each.created))
        if waited >= -MAX_CLOCK_SKEW_S:
            expected.append(max(waited, 0))
    assert (seconds or []) == expected[:MAX_WAITS]
