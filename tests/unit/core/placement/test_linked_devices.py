"""Devices of other vendors that are given together, by HAMi's tables (``ascend/device_910c_pairing_test.go``,
``kunlun/topo_test.go``, ``awsneuron/device_test.go``): by the indexes that are free, which a container gets."""

import pytest

from purser.core.fleet import Fleet
from purser.core.model import (
    ContainerGrant,
    ContainerKind,
    ContainerRequest,
    Device,
    DeviceRequest,
    DeviceShare,
    Grant,
    NodeInventory,
    PodRequest,
)
from purser.core.placement import Evaluator, Placement, Reason, place
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.core.vendors.catalogue import FAMILIES

LINKED = {family.word: family for family in FAMILIES if family.linked is not None}


def fleet_of(word, count, free, *, ring=False):
    """A node with so many devices of a family, all others of which are another pod's."""
    resource, indexes = LINKED[word].resource, range(count)
    devices = tuple(Device(f"d{index}", index, word, 32000, slots=1, resource=resource, ring=ring) for index in indexes)
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", devices))
    taken = tuple(DeviceShare(f"d{index}", 32000, 100, family=resource) for index in indexes if index not in free)
    fleet.ledger.adopt(Grant("other", "ns", "other", "n", (ContainerGrant("c", ContainerKind.APP, taken),)))
    return fleet


def asks(word, count):
    family = LINKED[word]
    linked = family.linked.groups(count) if count > 1 else ()
    asked = DeviceRequest(count, memory_percent=100, cores_percent=100, resource=family.resource, linked=linked)
    return PodRequest("u", "ns", "p", (ContainerRequest("c", ContainerKind.APP, asked),), family=family.resource)


def chosen(fleet, request):
    """The indexes that a pod gets, sorted; None where it gets none."""
    found = place(fleet.node("n"), request)
    fits = Evaluator(fleet, DEFAULT_POLICIES).evaluate(request, ["n"])
    assert bool(fits.fits) is isinstance(found, Placement)
    if not isinstance(found, Placement):
        return {reason for reason, _ in found.counts}
    return sorted(int(share.uuid[1:]) for share in found.containers[0].shares)


ALL_8, ALL_16 = range(8), range(16)


@pytest.mark.parametrize(
    ("word", "free", "count", "wanted"),
    [
        ("Ascend910C", (0, 1, 2, 4, 6), 4, None),
        ("Ascend910C", (0, 2), 2, None),
        ("Ascend910C", (0, 1), 2, (0, 1)),
        ("Ascend910C", (1, 2, 3, 4, 8, 9), 4, (2, 3, 8, 9)),
        ("Ascend910C", ALL_16, 16, tuple(ALL_16)),
        ("kunlun", ALL_8, 8, tuple(ALL_8)),
        ("kunlun", ALL_8[:7], 8, None),
        ("kunlun", ALL_8, 4, (0, 1, 2, 3)),
        ("kunlun", {*ALL_8} - {5}, 4, (0, 1, 2, 3)),
        ("kunlun", (0, 1, 4, 5), 4, (0, 1, 4, 5)),
        ("kunlun", (0, 1, 4, 6), 4, None),
        ("kunlun", (3, 7), 2, (3, 7)),
        ("kunlun", (3, 4), 2, None),
        ("kunlun", (0, 1, 2, 3, 6, 7), 2, (6, 7)),
        ("AWSNeuron", ALL_16, 16, tuple(ALL_16)),
        ("AWSNeuron", {*ALL_16} - {7, 13}, 8, None),
        ("AWSNeuron", {*ALL_16} - {7}, 8, tuple(range(8, 16))),
        ("AWSNeuron", {*ALL_16} - {1, 6, 15}, 4, (8, 9, 10, 11)),
    ],
)
def test_a_container_gets_whole_groups_or_nothing(word, free, count, wanted):
    fleet, request = fleet_of(word, 16 if word != "kunlun" else 8, free), asks(word, count)
    found = place(fleet.node("n"), request)
    fits = Evaluator(fleet, DEFAULT_POLICIES).evaluate(request, ["n"])
    if wanted is None:
        why = Reason.NOT_LINKED if len(free) >= count else Reason.TOO_FEW_GPUS
        assert why in {reason for reason, _ in found.counts}
        assert fits.fits == []
        return
    assert isinstance(found, Placement)
    assert tuple(sorted(int(share.uuid[1:]) for share in found.containers[0].shares)) == wanted
    assert fits.fits == ["n"]


@pytest.mark.parametrize(
    ("free", "count", "wanted"),
    [
        (ALL_16, 16, [*ALL_16]),
        ({*ALL_16} - {5, 14}, 8, [6, 7, 8, 9, 10, 11, 12, 13]),
        ({*ALL_16} - {5, 11}, 3, [12, 13, 14]),
        ({1, 2, 4, 5, 8, 9, 10}, 3, [8, 9, 10]),
        ({1, 2, 4, 5, 8, 9}, 3, {Reason.NOT_LINKED, Reason.SLOTS_EXHAUSTED}),
        ({0, 15}, 2, {Reason.NOT_LINKED, Reason.SLOTS_EXHAUSTED}),
    ],
)
def test_in_a_ring_any_number_in_a_row_will_do(free, count, wanted):
    """Without the one link from the last to the first, as HAMi has it (``graphSelect``)."""
    assert chosen(fleet_of("AWSNeuron", 16, free, ring=True), asks("AWSNeuron", count)) == wanted


def test_elsewhere_a_number_that_is_never_linked_waits():
    assert chosen(fleet_of("AWSNeuron", 16, ALL_16), asks("AWSNeuron", 3)) == {Reason.NOT_LINKED}


def test_nodes_that_differ_in_their_links_alone_are_judged_each_by_itself():
    """Of eight XPUs number 3 is missing on one node, number 7 on the other."""
    fleet = Fleet()
    for name, missing in (("a", 3), ("b", 7)):
        resource = LINKED["kunlun"].resource
        devices = tuple(
            Device(f"{name}{index}", index, "x", 32000, slots=1, resource=resource, vendor="kunlunxin")
            for index in (missing, missing - 4 if missing > 3 else missing + 4, 1)
            if index != missing
        )
        fleet.set_inventory(NodeInventory(name, devices))
    fits = Evaluator(fleet, DEFAULT_POLICIES).evaluate(asks("kunlun", 2), ["a", "b"])
    assert fits.fits == ["b"]
