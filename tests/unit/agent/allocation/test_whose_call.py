"""The resolving rule: tables of single calls. Whole admissions in random order are in test_whose_call_random."""

import pytest
from tests.unit.agent.builders import A, B, C, D, grant, grants_of, init, listed, part, sidecar, slot, slots

from purser.agent.allocation.admission import owner_of, resolve, ungranted_holder
from purser.agent.allocation.holding import gpus_of_pod
from purser.agent.kubelet.calls import AllocateCall, PreferredAllocationCall


def whose(ask, listing, grants, served=None):
    return resolve(ask, listing, grants_of(*grants), {f"uid-{pod}": frozenset(n) for pod, n in (served or {}).items()})


def turn_of(resolution):
    return resolution.turn and (resolution.turn.grant.pod, resolution.turn.part.container)


ONE = PreferredAllocationCall(1, slots(A, B, C, D))
TWO = PreferredAllocationCall(2, slots(A, B, C, D))


@pytest.mark.parametrize(
    ("ask", "listing", "grants", "served", "expected"),
    [
        pytest.param(ONE, [listed("p", main=[])], [grant("p", part("main", A))], {}, ("p", "main"), id="one pod waits"),
        pytest.param(
            ONE,
            [listed("other", main=[]), listed("p", main=[])],
            [grant("p", part("main", A))],
            {},
            ("p", "main"),
            id="pods without a grant do not count",
        ),
        pytest.param(
            ONE,
            [listed("p", main=[])],
            [grant("p", part("main", A)), grant("behind", part("main", B))],
            {},
            ("p", "main"),
            id="pods that kubelet does not list yet do not count",
        ),
        pytest.param(
            ONE,
            [listed("p", one=[], two=[])],
            [grant("p", part("one", A), part("two", B))],
            {"p": ["one", "two"]},
            ("p", "one"),
            id="kubelet's list wins over the agent's book for containers in it",
        ),
        pytest.param(
            ONE,
            [listed("p", plain=[], main=[])],
            [grant("p", part("main", A))],
            {},
            ("p", "main"),
            id="containers that ask for nothing are passed over",
        ),
        pytest.param(
            ONE,
            [listed("p", one=[slot(A, 0)], two=[])],
            [grant("p", init("prepare", A), part("one", A), part("two", B))],
            {},
            ("p", "two"),
            id="an init container is over when one behind it has devices",
        ),
        pytest.param(
            ONE,
            [listed("p", proxy=[], main=[])],
            [grant("p", init("prepare", B), sidecar("proxy", A), part("main", B))],
            {"p": ["prepare"]},
            ("p", "proxy"),
            id="a sidecar is listed by newer kubelets",
        ),
        pytest.param(
            PreferredAllocationCall(2, slots(A, B, C)),
            [listed("p", main=[])],
            [grant("p", init("prepare", A, B), part("main", C))],
            {"p": ["prepare"]},
            ("p", "prepare"),
            id="a kubelet that restarted asks for an init container again",
        ),
        pytest.param(
            TWO,
            [listed("rejected", main=[]), listed("p", main=[])],
            [grant("rejected", part("main", A)), grant("p", part("main", B, C))],
            {},
            ("p", "main"),
            id="of two that wait the one whose request has that size",
        ),
        pytest.param(
            ONE,
            [listed("rejected", main=[]), listed("p", main=[])],
            [grant("rejected", part("main", A)), grant("p", part("main", B))],
            {},
            None,
            id="two of equal size on different devices are ambiguous",
        ),
        pytest.param(
            PreferredAllocationCall(1, slots(B, C)),
            [listed("rejected", main=[]), listed("p", main=[])],
            [grant("rejected", part("main", A)), grant("p", part("main", B))],
            {},
            ("p", "main"),
            id="of two that wait the one whose device has a free id",
        ),
        pytest.param(
            ONE,
            [listed("rejected", main=[]), listed("p", main=[])],
            [grant("rejected", part("main", A, memory_mib=1)), grant("p", part("main", A, memory_mib=2))],
            {},
            ("p", "main"),
            id="grants on the same device are the same to a preference",
        ),
        pytest.param(
            AllocateCall((slot(A, 1),)),
            [listed("rejected", main=[]), listed("p", main=[])],
            [grant("rejected", part("main", A, memory_mib=1)), grant("p", part("main", A, memory_mib=2))],
            {},
            None,
            id="grants of different size on the same device are ambiguous to an allocation",
        ),
        pytest.param(
            AllocateCall((slot(A, 1),)),
            [listed("q", main=[]), listed("p", main=[])],
            [grant("q", part("main", A)), grant("p", part("main", A))],
            {},
            ("p", "main"),
            id="equal grants are exchangeable, the first by uid is taken",
        ),
        pytest.param(
            AllocateCall((slot(A, 1),)),
            [listed("rejected", main=[]), listed("p", main=[])],
            [grant("rejected", part("main", A)), grant("p", init("prepare", A), part("main", A, memory_mib=2))],
            {},
            None,
            id="an init container is exchangeable with nobody, for nobody else knows that it was served",
        ),
        pytest.param(
            AllocateCall((slot(B, 1), slot(A, 2))),
            [listed("p", main=[])],
            [grant("p", part("main", A, B))],
            {},
            ("p", "main"),
            id="the order of ids does not matter",
        ),
        pytest.param(
            AllocateCall((slot(A, 1), slot(A, 2))),
            [listed("p", main=[])],
            [grant("p", part("main", A, B))],
            {},
            None,
            id="two slots of one card are not two cards",
        ),
        pytest.param(
            AllocateCall((slot(B, 1),)),
            [listed("p", main=[])],
            [grant("p", part("main", A))],
            {},
            None,
            id="another card",
        ),
        pytest.param(
            PreferredAllocationCall(2, slots(A, B), (slot(B, 1),)),
            [listed("p", main=[])],
            [grant("p", part("main", A, B))],
            {},
            ("p", "main"),
            id="what must be included is of the grant",
        ),
        pytest.param(
            PreferredAllocationCall(2, slots(A, B, C), (slot(C, 1),)),
            [listed("p", main=[])],
            [grant("p", part("main", A, B))],
            {},
            None,
            id="what must be included is not of the grant",
        ),
        pytest.param(
            AllocateCall((slot(A, 1),)),
            [listed("p", web=[slot(A, 0)]), listed("p", main=[])],
            [grant("p", part("main", A))],
            {},
            ("p", "main"),
            id="a pod that is being ended, of the same name and with other containers, does not count",
        ),
        pytest.param(
            ONE,
            [listed("p", one=[slot(C, 0)], two=[]), listed("p", one=[], two=[])],
            [grant("p", part("one", A), part("two", B))],
            {},
            ("p", "one"),
            id="a pod that is being ended, of the same name and half served, does not count",
        ),
        pytest.param(
            ONE,
            [listed("p", one=[slot(C, 0)], two=[]), listed("p", one=[slot(A, 0)], two=[])],
            [grant("p", part("one", A), part("two", B))],
            {"p": ["one"]},
            ("p", "two"),
            id="a pod of the same name does not keep the second container from its turn",
        ),
        pytest.param(ONE, [], [grant("p", part("main", A))], {}, None, id="nobody waits"),
        pytest.param(ONE, [listed("p", main=[])], [], {}, None, id="nobody has a grant"),
    ],
)
def test_the_turn_is_that_of(ask, listing, grants, served, expected):
    assert turn_of(whose(ask, listing, grants, served)) == expected


def test_an_ambiguity_names_everybody_who_fits():
    resolution = whose(
        ONE,
        [listed("q", main=[]), listed("p", main=[]), listed("r", main=[])],
        [grant("p", part("main", A)), grant("q", part("main", B)), grant("r", part("main", A, B))],
    )
    assert [turn.grant.pod for turn in resolution.fitting] == ["p", "q"]
    assert [turn.grant.pod for turn in resolution.waiting] == ["p", "q", "r"]


def test_a_preference_is_answered_with_required_ids_first_then_the_lowest_slots():
    ask = PreferredAllocationCall(3, (slot(A, 10), slot(A, 9), slot(B, 2), slot(B, 7), slot(C, 5)), (slot(B, 7),))
    assert ask.answer(part("main", C, B, A)) == (slot(C, 5), slot(B, 7), slot(A, 9))


def test_a_whole_gpu_is_its_own_id():
    assert PreferredAllocationCall(1, (A, B)).answer(part("main", B)) == (B,)
    assert AllocateCall((B,)).fits(part("main", B))


def test_the_owner_of_ids_holds_exactly_these():
    listing = [listed("p", one=[slot(A, 0)], two=[slot(A, 1), slot(B, 0)])]
    assert owner_of([slot(B, 0), slot(A, 1)], listing) == (listing[0], "two")
    assert owner_of([slot(B, 0)], listing) is None


def test_a_stranger_is_found_on_the_gpu_not_on_the_slot():
    strangers = {"ns/old": gpus_of_pod(listed("old", main=[slot(A, 3)]), None)}
    assert ungranted_holder([B, A], strangers) == ("ns/old", A)
    assert ungranted_holder([B], strangers) is None
