"""Devices that take only shares that are alike, by HAMi's table for Kunlun (``kunlun/vdevice_test.go``,
``Test_FitVXPU_direct``), and through a pod's whole life in the fleet."""

import msgspec
import pytest
from tests.unit.core.placement.vendor_world import World, vendor_pod

from purser.core.dialects import DialectError, parse
from purser.core.ledger import OvercommitError
from purser.core.model import ContainerKind, Device, Grant
from purser.core.placement import Reason
from purser.core.placement.granted import to_grant
from purser.core.vendors.catalogue import families_of
from purser.core.vendors.registration import vendor_devices

VXPU, MEMORY = "kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory"
QUARTER, HALF = 24576, 49152
SGPU, QOS = "metax-tech.com/sgpu", "metax-tech.com/sgpu-qos-policy"


def xpus(count):
    xpu = {"slots": 4, "resource": VXPU, "vendor": "kunlunxin"}
    return [Device(f"x{at}", at, "XPU", 98304, **xpu) for at in range(count)]


def pod(name, *asked, count=1, kinds=()):
    limits = ({VXPU: count} | ({MEMORY: mib} if mib else {}) for mib in asked)
    return parse(vendor_pod("Kunlun vXPU", name, *limits, kinds=kinds))


def registered(family, annotations, resource, listed):
    return vendor_devices(families_of([family]), "n", annotations, {}, {resource: listed}).devices


def sgpus():
    text = '[{"uuid":"g","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true}]'
    return registered("MetaX sGPU", {"metax-tech.com/node-gpu-devices": text}, SGPU, 16)


def sgpu_pod(name, annotations, cores, gib):
    limits = {SGPU: 1, "metax-tech.com/vcore": cores, "metax-tech.com/vmemory": gib}
    return parse(vendor_pod("MetaX sGPU", name, limits, annotations=annotations))


def try_(world, request):
    """The devices of each container of a pod that was placed; else the reasons why it was not."""
    found = world.grant(request)
    if isinstance(found, Grant):
        return [part.uuids for part in found.containers]
    assert {reason for reason, _ in world.evaluator.evaluate(request, ["n"]).refusals["n"].counts} == found
    return found


@pytest.mark.parametrize(
    ("held", "asked", "reason"),
    [
        ([], QUARTER, None),
        ([QUARTER, QUARTER], QUARTER, None),
        ([HALF], QUARTER, Reason.SHARES_DIFFER),
        ([QUARTER], HALF, Reason.SHARES_DIFFER),
        ([QUARTER] * 4, QUARTER, Reason.SLOTS_EXHAUSTED),
        ([HALF, HALF], HALF, Reason.INSUFFICIENT_MEMORY),
        ([QUARTER], None, Reason.INSUFFICIENT_MEMORY),
    ],
)
def test_an_xpu_takes_shares_of_one_size(held, asked, reason):
    world = World(xpus(1))
    for at, mib in enumerate(held):
        assert try_(world, pod(f"held-{at}", mib)) == [("x0",)]
    found = try_(world, pod("p", asked))
    assert found == ([("x0",)] if reason is None else {reason})


def test_another_size_is_possible_again_when_the_last_share_is_given_back():
    world = World(xpus(1))
    try_(world, pod("a", HALF))
    try_(world, pod("b", HALF))
    world.fleet.ledger.release("a")
    assert try_(world, pod("p", QUARTER)) == {Reason.SHARES_DIFFER}
    world.fleet.ledger.release("b")
    assert try_(world, pod("p", QUARTER)) == [("x0",)]


def test_containers_of_one_pod_with_two_sizes_get_two_xpus():
    assert try_(World(xpus(1)), pod("p", QUARTER, HALF)) == {Reason.SHARES_DIFFER}
    found = try_(World(xpus(2)), pod("p", QUARTER, HALF))
    assert sorted(found) == [("x0",), ("x1",)]


def test_several_shares_are_of_linked_xpus():
    world = World(xpus(8))
    assert try_(world, pod("whole", None, count=2)) in ([("x0", "x1")], [("x1", "x0")])
    ((first, second),) = try_(world, pod("p", QUARTER, count=2))
    assert {first, second} & {"x0", "x1"} == set()
    assert (int(first[1]) < 4) is (int(second[1]) < 4) or int(second[1]) - int(first[1]) in (4, -4)


@pytest.mark.parametrize(
    ("held", "asked", "fits"),
    [
        ({}, {}, True),
        ({}, {QOS: "best-effort"}, True),
        ({QOS: "burst-share"}, {QOS: "burst-share"}, True),
        ({QOS: "burst-share"}, {}, False),
        ({}, {QOS: "fixed-share"}, False),
    ],
)
def test_an_sgpu_has_shares_of_one_quality_of_service(held, asked, fits):
    """HAMi's ``TestCheckDeviceQos``."""
    world = World(sgpus())

    def of(name, annotations, cores=10):
        return sgpu_pod(name, annotations, cores, 1)

    assert try_(world, of("whole", asked, 100)) == [("g",)]
    world.fleet.ledger.release("whole")
    assert try_(world, of("held", held)) == [("g",)]
    assert try_(world, of("p", asked)) == ([("g",)] if fits else {Reason.SHARES_DIFFER})


ONLINE, OFFLINE = ({"metax-tech.com/sgpu-app-class": word} for word in ("online", "offline"))


@pytest.mark.parametrize(
    ("held", "asked", "wanted"),
    [
        ([], ONLINE, None),
        ([], OFFLINE, None),
        ([{}], {}, None),
        ([ONLINE], {}, Reason.SHARES_DIFFER),
        ([OFFLINE], {}, Reason.SHARES_DIFFER),
        ([{}], ONLINE, Reason.SHARES_DIFFER),
        ([{}], OFFLINE, Reason.SHARES_DIFFER),
        ([OFFLINE, ONLINE], ONLINE, None),
        ([OFFLINE, ONLINE], OFFLINE, Reason.SHARES_DIFFER),
        ([OFFLINE], OFFLINE, None),
        ([OFFLINE], {**OFFLINE, QOS: "fixed-share"}, Reason.SHARES_DIFFER),
        ([OFFLINE, OFFLINE], OFFLINE, Reason.INSUFFICIENT_CORES),
        ([OFFLINE, OFFLINE], ONLINE, None),
        ([OFFLINE, OFFLINE, ONLINE, ONLINE], ONLINE, Reason.INSUFFICIENT_MEMORY),
    ],
)
def test_pods_of_class_online_come_to_those_of_class_offline_and_not_the_other_way_round(held, asked, wanted):
    """HAMi's ``TestCheckAppClass``, with half of a GPU's compute and a quarter of its memory each."""
    world = World(sgpus())
    for at, annotations in enumerate(held):
        assert try_(world, sgpu_pod(f"held-{at}", annotations, 50, 16)) == [("g",)]
    assert try_(world, sgpu_pod("p", asked, 50, 16)) == ([("g",)] if wanted is None else {wanted})
    assert not world.fleet.ledger.violations()


NPU = "huawei.com/Ascend310P"


@pytest.mark.parametrize(
    ("says", "held", "asked", "wanted"),
    [
        ({}, None, True, {Reason.TYPE_MISMATCH}),
        ({"hami-vnpu-core": "false"}, None, True, {Reason.TYPE_MISMATCH}),
        ({"hami-vnpu-core": "true"}, None, True, [("a",)]),
        ({"hami-vnpu-core": "true"}, True, True, [("a",)]),
        ({"hami-vnpu-core": "true"}, None, False, [("a",)]),
        ({"hami-vnpu-core": "true"}, False, True, {Reason.SHARES_DIFFER}),
        ({"hami-vnpu-core": "true"}, True, False, {Reason.SHARES_DIFFER}),
        ({}, False, False, [("a",)]),
    ],
)
def test_ascends_soft_split_is_for_nodes_that_have_it_and_never_beside_templates(says, held, asked, wanted):
    """HAMi's ``Fit`` goes by the node's annotation; that a template is beside it on one NPU it does not look at."""
    text = '[{"id":"a","count":7,"devmem":21527,"devcore":8,"type":"Ascend310P","health":true}]'
    world = World(registered("Ascend 310P", {"hami.io/node-register-Ascend310P": text, **says}, NPU, 7))

    def of(name, is_soft):
        limits = {NPU: 1, f"{NPU}-memory": 1000, **({f"{NPU}-core": 10} if is_soft else {})}
        mode = {"huawei.com/vnpu-mode": "hami-core"} if is_soft else {}
        return parse(vendor_pod("Ascend 310P", name, limits, annotations=mode))

    if held is not None:
        assert try_(world, of("held", held)) == [("a",)]
    assert try_(world, of("p", asked)) == wanted


def test_the_ledger_refuses_by_itself_what_is_not_alike():
    world = World(xpus(1))
    try_(world, pod("a", HALF))
    other = pod("b", QUARTER)
    empty = World(xpus(1)).evaluator.place("n", other)
    plain = msgspec.structs.replace(empty.containers[0].shares[0], alike="")
    part = msgspec.structs.replace(empty.containers[0], shares=(plain,))
    with pytest.raises(OvercommitError, match="it would hold incompatible shares: 49152 MiB and others"):
        world.fleet.ledger.reserve(Grant("b", "team", "b", "n", (part,)))
    with pytest.raises(OvercommitError, match="it would hold incompatible shares: 24576 MiB and 49152 MiB"):
        world.fleet.ledger.reserve(to_grant(empty, other, world.inventory))


def test_init_containers_and_those_after_them_ask_for_one_size():
    kinds = (ContainerKind.INIT, ContainerKind.APP)
    with pytest.raises(DialectError, match="ask for 49152 MiB and 24576 MiB: all containers must ask for shares"):
        pod("p", HALF, QUARTER, kinds=kinds)
    assert try_(World(xpus(1)), pod("p", HALF, HALF, kinds=kinds)) == [("x0",), ("x0",)]
