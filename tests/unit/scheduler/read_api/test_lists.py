"""Lists of what the state has, some at a time: all of it once, in an order that stays, and nothing of others."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kube.servers import StandingClock
from tests.unit.scheduler.read_api.test_namespaces import NAMESPACES, cluster, decoded

from purser.core.model import GrantState
from purser.core.state import GrantList, NodeList, StateReplica, WaitingList
from purser.scheduler.read_api.documents import MIN_DOCUMENT_AGE_S
from purser.scheduler.read_api.lists import (
    MAX_LIMIT,
    ListKind,
    ListPart,
    ListQueryError,
    Place,
    in_order,
    read_part,
)
from purser.scheduler.read_api.page import Scope, StatePage

TYPES = {ListKind.NODES: NodeList, ListKind.GRANTS: GrantList, ListKind.WAITING: WaitingList}
REPLICA = StateReplica("bravo-scheduler-pod", True, "bravo-scheduler-pod")

_namespace, _number = st.sampled_from(NAMESPACES), st.integers(0, 5)
_places = st.lists(st.tuples(_namespace, _number, _number), max_size=8)


async def pages(page, kind, scope, limit, between=lambda: None):
    """The parts of a list from its beginning to its end."""
    found, after = [], ""
    while True:
        query = {"limit": str(limit)} | ({"continue": after} if after else {})
        document = await page.listed(kind, scope, read_part(query, kind, scope and scope.namespace))
        text = b"".join(document.pieces)
        part = msgspec.json.decode(text, type=TYPES[kind])
        assert msgspec.json.encode(part) == text, "the types say otherwise, or in another order"
        found.append(part)
        after = part.continue_
        if not after:
            return found
        assert len(part.items) == limit
        between()


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=6),
    _places,
    st.lists(_namespace, max_size=6),
    _places,
    st.integers(1, 4),
)
async def test_the_parts_together_are_what_the_state_has_and_name_no_other_namespace(
    nodes, held, waiting, disputes, limit
):
    cache, pending = cluster(nodes, held, waiting, disputes)
    page = StatePage(cache, pending, lambda: REPLICA, StandingClock())
    for scope in (None, *(Scope(name, has_all) for name in (*NAMESPACES, "empty") for has_all in (True, False))):
        state = decoded(await page.current(scope))
        for kind in ListKind:
            parts = await pages(page, kind, scope, limit)
            items = [each for part in parts for each in part.items]
            of_state = getattr(state, kind)
            if kind is not ListKind.NODES:
                of_state = sorted(of_state, key=lambda each: (each.namespace, f"{each.pod}/{each.uid}"))
            assert items == list(of_state)
            for other in NAMESPACES if scope is not None else ():
                assert other == scope.namespace or other.encode() not in msgspec.json.encode(parts)


async def test_what_is_there_all_the_time_is_seen_once_though_others_come_and_go():
    held = [(NAMESPACES[count % 3], count, 0) for count in range(12)]
    cache, pending = cluster([1] * 12, held, [], [])
    clock = StandingClock()
    page = StatePage(cache, pending, lambda: REPLICA, clock)
    kept, ledger = {uid for uid in cache.fleet.ledger.uids() if "-held-1" not in uid}, cache.fleet.ledger
    gone = [ledger.grant(uid) for uid in sorted(ledger.uids()) if uid not in kept]

    def change():
        """All the others are gone, or there, in turn."""
        for each in gone:
            if ledger.grant(each.pod_uid) is None:
                ledger.adopt(each, GrantState.BOUND)
            else:
                ledger.release(each.pod_uid)
        clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S

    for limit in (1, 2, 3, 5):
        seen = [each.uid for part in await pages(page, ListKind.GRANTS, None, limit, change) for each in part.items]
        assert len(seen) == len(set(seen))
        assert kept <= set(seen)


async def test_a_part_is_another_only_when_something_in_it_is_and_replicas_say_what_they_do_not_know():
    cache, pending = cluster([1, 1], [("alpha", 0, 0), ("bravo", 1, 0)], ["alpha"], [])
    clock = StandingClock()
    page = StatePage(cache, pending, lambda: StateReplica("p", False, "q"), clock)
    asked = (ListKind.GRANTS, Scope("alpha", False), ListPart(10, None))
    first = await page.listed(*asked)
    cache.fleet.ledger.release("bravo-held-1-uid")
    clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    assert (await page.listed(*asked)).tag == first.tag
    cache.fleet.ledger.advance("alpha-held-0-uid", GrantState.ALLOCATED)
    clock.ahead_s += 100 * MIN_DOCUMENT_AGE_S
    assert (await page.listed(*asked)).tag != first.tag
    [part] = await pages(page, ListKind.WAITING, None, 5)
    assert (part.items[0].reason, "does not place pods" in part.notes[0]) == ("", True)


@pytest.mark.parametrize(
    ("query", "kind", "namespace"),
    [
        *(({"limit": odd}, ListKind.NODES, None) for odd in ("0", "501", "-1", "x", "", "1e2", "٣", "00001")),
        ({"continue": "a/b"}, ListKind.NODES, None),
        ({"continue": "a b"}, ListKind.NODES, None),
        ({"continue": "a" * 254}, ListKind.NODES, None),
        ({"continue": "a"}, ListKind.GRANTS, None),
        ({"continue": "a/b"}, ListKind.WAITING, None),
        ({"continue": "a/b/c/d"}, ListKind.WAITING, None),
        ({"continue": "bravo/p/u"}, ListKind.WAITING, "alpha"),
    ],
)
def test_odd_queries_are_refused_with_what_they_have_to_be(query, kind, namespace):
    with pytest.raises(ListQueryError, match=f"^{next(iter(query))} must be "):
        read_part(query, kind, namespace)


def test_queries():
    assert read_part({}, ListKind.NODES, None) == (MAX_LIMIT, None)
    assert read_part({"limit": "7", "continue": "n1.example"}, ListKind.NODES, "a") == (7, Place("", "n1.example"))
    assert read_part({"continue": "a/p/u"}, ListKind.GRANTS, "a") == (MAX_LIMIT, Place("a", "p/u"))


async def test_many_are_put_in_order_in_small_steps():
    many = [b',{"namespace":"a","pod":"%05d","uid":"u"}' % (number * 7919 % 10007) for number in range(10_007)]
    sorting, turns = asyncio.ensure_future(in_order(many)), 0
    while not sorting.done():
        turns += 1
        await asyncio.sleep(0)
    assert (await sorting == sorted(many), turns > 30) == (True, True)
    assert await in_order(()) == ()
