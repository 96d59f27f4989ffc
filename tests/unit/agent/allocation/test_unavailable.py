"""Why kubelet has no id of a GPU that was granted."""

import pytest
from tests.unit.agent.builders import A, B, device, grant, listed, part, slot, slots

from purser.agent.allocation.admission import ContainerTurn
from purser.agent.allocation.resolver import NoGrantFits
from purser.agent.allocation.unavailable import find_unavailable_gpu
from purser.agent.kubelet.calls import PreferredAllocationCall
from purser.agent.kubelet.refusals import RefusalReason

SICK = device(A, healthy=False, unhealthy_reason="Xid 79")
CROWD = [listed(f"old-{number}", main=[slot(A, number)]) for number in range(5)]


@pytest.mark.parametrize(
    ("granted", "offered", "listing", "devices", "expected"),
    [
        ((A,), slots(A, B), CROWD, (SICK,), None),
        ((A,), slots(B), [], (device(A),), None),
        ((A,), slots(B), CROWD, (SICK,), (RefusalReason.UNHEALTHY, f"device {A} is unhealthy: Xid 79", ())),
        ((B, A), slots(B), CROWD[:1], (), (RefusalReason.OVERCOMMIT, "pod ns/old-0 still holds it", ("ns/old-0",))),
        (
            (A,),
            slots(B),
            [listed("secret", namespace="team-b", main=[slot(A, 1)])],
            (),
            (RefusalReason.OVERCOMMIT, "a pod in another namespace still holds it", ("team-b/secret",)),
        ),
        ((A,), slots(B), CROWD, (), (RefusalReason.OVERCOMMIT, "ns/old-1, ns/old-2 and 2 more still hold it", None)),
    ],
    ids=["an id is free", "nobody knows", "unhealthy", "held by one", "by another tenant", "held by many"],
)
def test_the_cause_is(granted, offered, listing, devices, expected):
    turn = ContainerTurn(grant("p", part("main", *granted)), part("main", *granted))
    ask = PreferredAllocationCall(len(granted), offered)
    found = find_unavailable_gpu(ask, turn, listing, {each.uuid: each for each in devices})
    if expected is None:
        assert found is None
        return
    reason, words, holders = expected
    assert found is not None
    assert (found.reason, found.uuid) == (reason, A)
    assert words in found.message
    assert found.in_the_way == (tuple(pod.key for pod in listing) if holders is None else holders)


@pytest.mark.parametrize(
    ("namespaces", "said"),
    [
        (("default", "default"), f"default/p container main ({A}); default/q container main ({B})"),
        (("default", "team-b"), "2 pods in different namespaces"),
    ],
)
def test_a_refusal_for_one_of_several_pods_names_none_where_they_are_of_several_namespaces(namespaces, said):
    grants = (
        grant(name, part("main", uuid), namespace=namespace)
        for name, uuid, namespace in zip("pq", (A, B), namespaces, strict=True)
    )
    turns = tuple(ContainerTurn(each, each.containers[0]) for each in grants)
    refusal = NoGrantFits(PreferredAllocationCall(1, slots(A)), turns, ())
    assert f": {said}. " in refusal.message
    assert refusal.in_the_way == tuple(each.key for each in turns), "the log names them"
