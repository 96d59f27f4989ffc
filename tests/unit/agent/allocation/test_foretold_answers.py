"""What placement foretells of the agent is what the agent answers, whatever kubelet asks."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.agent.builders import A, B, C, part, slot, slots

from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall
from purser.core.fleet.kubelet_snapshot import Arrival
from purser.core.kubelet.asks import Allocate, PreferredAllocation
from purser.core.kubelet.pod import KubeletPod, QosClass
from purser.core.kubelet.state import KubeletState
from purser.core.names import GPU_RESOURCE
from purser.core.placement.kubelet_prediction import DeviceMismatch, predict_agent_answer

IDS = (*slots(A, B, count=12), C)
"""Two shared cards, with slots of two digits, and a whole one."""

some_ids = st.frozensets(st.sampled_from(IDS), max_size=6)
grants = st.lists(st.sampled_from((A, B, C)), max_size=3, unique=True).map(lambda uuids: part("main", *uuids))


def foretold(ask, granted):
    pod = KubeletPod("u", (), QosClass.BURSTABLE)
    return predict_agent_answer(ask, Arrival(pod, {"main": granted.uuids} if granted.shares else {}))


def preferred(granted, size, available, must_include):
    """Foretold and the agent's; None: refused."""
    ask = PreferredAllocation(("u", "main"), GPU_RESOURCE, available, must_include, size, KubeletState())
    predicted = foretold(ask, granted)
    agents = PreferredAllocationCall(size, tuple(available), tuple(must_include))
    return (
        None if isinstance(predicted, DeviceMismatch) else predicted,
        agents.answer(granted) if agents.fits(granted) else None,
    )


@examples(200)
@given(grants, st.integers(0, 4), some_ids, st.frozensets(st.sampled_from(IDS), max_size=2))
@example(part("main", A), 1, frozenset({slot(A, 1)}), frozenset(slots(A, count=2)))
@example(part("main", A, B), 2, frozenset({slot(B, 1)}), frozenset({slot(A, 1)}))
def test_the_preferred_ids_are_foretold(granted, size, available, must_include):
    predicted, answered = preferred(granted, size, available, must_include)
    assert predicted == answered


@examples(200)
@given(grants, some_ids)
def test_the_allocation_is_foretold(granted, ids):
    predicted = foretold(Allocate(("u", "main"), GPU_RESOURCE, ids, KubeletState()), granted)
    assert (predicted == b"") == AllocateCall(tuple(ids)).fits(granted)


SEVERAL = [
    pytest.param(part("main", B, A), 2, slots(A, B, count=12), (), (slot(B, 0), slot(A, 0)), id="in the grant's order"),
    pytest.param(part("main", A), 1, (slot(A, 10), slot(A, 9)), (), (slot(A, 9),), id="slots count as numbers"),
    pytest.param(part("main", A), 1, slots(A), (slot(A, 2),), (slot(A, 2),), id="what must be included comes first"),
    pytest.param(part("main", A), 1, (), (slot(A, 2),), (slot(A, 2),), id="what must be included is available"),
    pytest.param(part("main", A), 1, slots(A), slots(A, count=2), None, id="two ids of one card must be included"),
    pytest.param(part("main", A), 1, slots(A, B), (slot(B, 0),), None, id="another card must be included"),
    pytest.param(part("main", A), 1, slots(B), (), None, id="the card has no slot left"),
    pytest.param(part("main", A), 2, slots(A, B), (), None, id="more ids than the grant has cards"),
]


@pytest.mark.parametrize(("granted", "size", "available", "must_include", "ids"), SEVERAL)
def test_both_answer_by_the_same_rule(granted, size, available, must_include, ids):
    assert preferred(granted, size, frozenset(available), frozenset(must_include)) == (ids, ids)


def test_a_container_that_does_not_fit_is_not_answered_for():
    with pytest.raises(ValueError, match=r"container main \(GPU-aaaaaaaa\) cannot get 1 of 1 free ID"):
        PreferredAllocationCall(1, (slot(B, 0),)).answer(part("main", A))
