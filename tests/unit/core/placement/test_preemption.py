"""Who has to go: kube-scheduler's choices as a table, and properties on real placements."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.fleet import Fleet
from purser.core.kubernetes.selectors import Requirement, Selector
from purser.core.model import (
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Placement, place, to_grant
from purser.core.placement.preemption import DisruptionRule, Occupant, Victims, cheapest_victims, find_violations, least

APP = Selector((Requirement("app", "In", ("a",)),))


def occupant(uid: str, priority: int = 0, started_at: float = 0.0, **facts: object) -> Occupant:
    return Occupant(uid, "ns", uid, priority, started_at, **facts)


def weights(**amounts: int):  # type: ignore[no-untyped-def]
    """What each pod gives up, and how much is needed together."""
    needed = amounts.pop("needed")
    return lambda gone: sum(amounts[uid] for uid in gone) >= needed


# kube-scheduler's SelectVictimsOnNode: all of lower priority are taken away, and spared again from the most important.
SELECTIONS = {
    "nobody of lower priority, no victims": ([], weights(needed=1), (), None),
    "all of them do not suffice": ([occupant("a")], weights(a=1, needed=2), (), None),
    "it fits as it is: nobody has to go": ([occupant("a")], weights(a=1, needed=0), (), None),
    "the less important goes": ([occupant("a", 5), occupant("b", 1)], weights(a=1, b=1, needed=1), (), ["b"]),
    "of equal importance the one that started later goes": (
        [occupant("a", 1, 100.0), occupant("b", 1, 50.0)],
        weights(a=1, b=1, needed=1),
        (),
        ["a"],
    ),
    "one that has not started goes before one that runs": (
        [occupant("a", 1, math.inf), occupant("b", 1, 50.0)],
        weights(a=1, b=1, needed=1),
        (),
        ["a"],
    ),
    "a small one that does not help is spared": (
        [occupant("a", 1), occupant("b", 5)],
        weights(a=1, b=8, needed=8),
        (),
        ["b"],
    ),
    "the most important is spared though two have to go for it": (
        [occupant("a", 1), occupant("b", 1), occupant("c", 5)],
        weights(a=1, b=1, c=2, needed=2),
        (),
        ["a", "b"],
    ),
    "victims are named from the most important on": (
        [occupant("a", 1), occupant("b", 5)],
        weights(a=1, b=1, needed=2),
        (),
        ["b", "a"],
    ),
    "whom kube-scheduler needs gone is not spared": (
        [occupant("a", 5), occupant("b", 1)],
        weights(a=1, b=1, needed=1),
        ("a",),
        ["a"],
    ),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_victims_are_chosen_as_kube_scheduler_does(case: str) -> None:
    lower, fits, needed, expected = SELECTIONS[case]
    for order in (lower, lower[::-1]):
        victims = least("n", order, fits, needed=needed)
        assert (victims and [pod.uid for pod in victims.pods]) == expected


def test_a_protected_pod_is_spared_before_a_more_important_one() -> None:
    lower = [occupant("a", 1, labels={"app": "a"}), occupant("b", 5)]
    rule = DisruptionRule("ns", APP, allowed=0)
    victims = least("n", lower, weights(a=1, b=1, needed=1), [rule])
    assert victims is not None and ([pod.uid for pod in victims.pods], victims.violations) == (["b"], 0)
    both = least("n", lower, weights(a=1, b=1, needed=2), [rule])
    assert both is not None and (len(both.pods), both.violations) == (2, 1)


VIOLATIONS = {
    "one may go, the next is protected": (DisruptionRule("ns", APP, 1), {"q"}),
    "another namespace's budget": (DisruptionRule("other", APP, 0), set()),
    "a pod whose going has been counted is not counted again": (DisruptionRule("ns", APP, 0, frozenset(["p"])), {"q"}),
    "a selector without conditions is about nobody": (DisruptionRule("ns", Selector(), 0), set()),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_budgets_are_counted_as_kube_scheduler_does(case: str) -> None:
    rule, expected = VIOLATIONS[case]
    assert find_violations([occupant(uid, labels={"app": "a"}) for uid in ("p", "q")], [rule]) == expected


def on(node: str, *pods: Occupant, violations: int = 0) -> Victims:
    return Victims(node, pods, violations)


# pickOneNodeForPreemption, one criterion after the other; b is the one to be chosen.
PICKS = {
    "fewest violations, whatever else": (on("a", occupant("p", 1), violations=1), on("b", occupant("q", 9))),
    "least important at the top": (on("a", occupant("p", 5)), on("b", occupant("q", 4), occupant("r", 4))),
    "smallest sum, where many negative ones are not less than one": (
        on("a", occupant("p", -1), occupant("q", -5)),
        on("b", occupant("r", -1)),
    ),
    "the most important of them started last": (on("a", occupant("p", 1, 10.0)), on("b", occupant("q", 1, 20.0))),
    "of the most important ones the first start counts": (
        on("a", occupant("p", 1, 30.0), occupant("q", 1, 10.0)),
        on("b", occupant("r", 1, 20.0), occupant("s", 1, 25.0)),
    ),
    "less important ones' starts do not count": (
        on("a", occupant("p", 2, 10.0), occupant("q", 1, 90.0)),
        on("b", occupant("r", 2, 20.0), occupant("s", 1, 0.0)),
    ),
    "by name at last": (on("c", occupant("p", 1)), on("b", occupant("q", 1))),
}


@pytest.mark.parametrize("case", PICKS)
def test_the_node_is_chosen_as_kube_scheduler_does(case: str) -> None:
    for order in (PICKS[case], PICKS[case][::-1]):
        chosen = cheapest_victims(order)
        assert chosen is not None and chosen.node == "b"


def test_no_candidates_no_choice() -> None:
    assert cheapest_victims([]) is None


def request_of(uid: str, memory: int, cards: int = 1, priority: int = 0) -> PodRequest:
    asked = ContainerRequest("c", ContainerKind.APP, DeviceRequest(cards, memory_mib=memory))
    return PodRequest(uid, "ns", uid, (asked,), priority=priority)


pods = st.tuples(st.integers(100, 1000), st.integers(1, 3), st.integers(0, 4))


@examples(60)
@given(st.lists(pods, max_size=12), st.tuples(st.integers(100, 1000), st.integers(1, 3), st.integers(0, 5)))
def test_victims_suffice_none_is_superfluous_and_none_is_as_important(
    there: list[tuple[int, int, int]], comes: tuple[int, int, int]
) -> None:
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", tuple(Device(f"d{i}", i, "NVIDIA", 1000, slots=4) for i in range(3))))
    priorities: dict[str, int] = {}
    for number, (memory, cards, priority) in enumerate(there):
        state, request = fleet.node("n"), request_of(f"p{number}", memory, cards, priority)
        assert state is not None
        placement = place(state, request)
        if isinstance(placement, Placement):
            fleet.ledger.reserve(to_grant(placement, request, state.inventory))
            priorities[request.uid] = priority
    incoming = request_of("new", comes[0], comes[1], comes[2])

    def fits(gone: frozenset[str]) -> bool:
        state = fleet.without("n", gone)
        return state is not None and isinstance(place(state, incoming), Placement)

    lower = [occupant(uid, priority) for uid, priority in priorities.items() if priority < incoming.priority]
    victims = least("n", lower, fits)
    if victims is None:
        assert fits(frozenset()) or not fits(frozenset(pod.uid for pod in lower))
        return
    assert victims.pods and fits(victims.uids)
    for pod in victims.pods:
        assert priorities[pod.uid] < incoming.priority
        assert not fits(victims.uids - {pod.uid})
