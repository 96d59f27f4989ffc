"""Devices that take only shares that are alike, by HAMi's table for Kunlun (``kunlun/vdevice_test.go``,
``Test_FitVXPU_direct``), and through a pod's whole life in the fleet."""

import msgspec
import pytest

from purser.core.dialects import DialectError, parse
from purser.core.fleet import Fleet
from purser.core.ledger import OvercommitError
from purser.core.model import ContainerKind, Device, Grant, NodeInventory
from purser.core.placement import Evaluator, Placement, Reason
from purser.core.placement.granted import to_grant
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.core.vendors.catalogue import families_of
from purser.core.vendors.registration import vendor_devices

VXPU, MEMORY = "kunlunxin.com/vxpu", "kunlunxin.com/vxpu-memory"
QUARTER, HALF = 24576, 49152
SGPU, QOS = "metax-tech.com/sgpu", "metax-tech.com/sgpu-qos-policy"


def node(count):
    xpu = {"slots": 4, "resource": VXPU, "vendor": "kunlunxin"}
    return NodeInventory("n", tuple(Device(f"x{at}", at, "XPU", 98304, **xpu) for at in range(count)))


def pod(name, *asked, count=1, kinds=()):
    kinds = kinds or (ContainerKind.APP,) * len(asked)
    containers = tuple(
        ContainerSpec(f"c{at}", kind, limits={VXPU: str(count)} | ({MEMORY: str(mib)} if mib else {}))
        for at, (mib, kind) in enumerate(zip(asked, kinds, strict=True))
    )
    return parse(PodManifest(name, "team", name, {}, containers, families=frozenset({"Kunlun vXPU"})))


class World:
    """A node as scheduler and ledger have it."""

    def __init__(self, count=1, inventory=None):
        self.fleet = Fleet()
        self.inventory = inventory or node(count)
        self.fleet.set_inventory(self.inventory)
        self.evaluator = Evaluator(self.fleet, DEFAULT_POLICIES)

    def try_(self, request):
        """The reasons why a pod does not fit; else it is reserved, and the devices of each container are returned."""
        fits = self.evaluator.evaluate(request, ["n"])
        found = self.evaluator.place("n", request)
        assert bool(fits.fits) is isinstance(found, Placement)
        if not isinstance(found, Placement):
            assert fits.refusals["n"].counts == found.counts
            return {reason for reason, _ in found.counts}
        self.fleet.ledger.reserve(to_grant(found, request, self.inventory))
        return [part.uuids for part in found.containers]


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
    world = World()
    for at, mib in enumerate(held):
        assert world.try_(pod(f"held-{at}", mib)) == [("x0",)]
    found = world.try_(pod("p", asked))
    assert found == ([("x0",)] if reason is None else {reason})


def test_another_size_is_possible_again_when_the_last_share_is_given_back():
    world = World()
    world.try_(pod("a", HALF))
    world.try_(pod("b", HALF))
    world.fleet.ledger.release("a")
    assert world.try_(pod("p", QUARTER)) == {Reason.SHARES_DIFFER}
    world.fleet.ledger.release("b")
    assert world.try_(pod("p", QUARTER)) == [("x0",)]


def test_containers_of_one_pod_with_two_sizes_get_two_xpus():
    assert World().try_(pod("p", QUARTER, HALF)) == {Reason.SHARES_DIFFER}
    found = World(2).try_(pod("p", QUARTER, HALF))
    assert sorted(found) == [("x0",), ("x1",)]


def test_several_shares_are_of_linked_xpus():
    world = World(8)
    assert world.try_(pod("whole", None, count=2)) in ([("x0", "x1")], [("x1", "x0")])
    ((first, second),) = world.try_(pod("p", QUARTER, count=2))
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
    registered = '[{"uuid":"g","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true}]'
    annotations = {"metax-tech.com/node-gpu-devices": registered}
    found = vendor_devices(families_of(["MetaX sGPU"]), "n", annotations, {}, {SGPU: 16})
    world = World(inventory=NodeInventory("n", found.devices))

    def of(name, annotations, cores=10):
        limits = {SGPU: "1", "metax-tech.com/vcore": str(cores), "metax-tech.com/vmemory": "1"}
        container = ContainerSpec("c", ContainerKind.APP, limits=limits)
        families = frozenset({"MetaX sGPU"})
        return parse(PodManifest(name, "team", name, annotations, (container,), families=families))

    assert world.try_(of("whole", asked, 100)) == [("g",)]
    world.fleet.ledger.release("whole")
    assert world.try_(of("held", held)) == [("g",)]
    assert world.try_(of("p", asked)) == ([("g",)] if fits else {Reason.SHARES_DIFFER})


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
    registered = '[{"uuid":"g","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true}]'
    found = vendor_devices(
        families_of(["MetaX sGPU"]), "n", {"metax-tech.com/node-gpu-devices": registered}, {}, {SGPU: 8}
    )
    world = World(inventory=NodeInventory("n", found.devices))

    def of(name, annotations):
        limits = {SGPU: "1", "metax-tech.com/vcore": "50", "metax-tech.com/vmemory": "16"}
        container = ContainerSpec("c", ContainerKind.APP, limits=limits)
        return parse(PodManifest(name, "team", name, annotations, (container,), families=frozenset({"MetaX sGPU"})))

    for at, annotations in enumerate(held):
        assert world.try_(of(f"held-{at}", annotations)) == [("g",)]
    assert world.try_(of("p", asked)) == ([("g",)] if wanted is None else {wanted})
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
    registered = '[{"id":"a","count":7,"devmem":21527,"devcore":8,"type":"Ascend310P","health":true}]'
    annotations = {"hami.io/node-register-Ascend310P": registered, **says}
    found = vendor_devices(families_of(["Ascend 310P"]), "n", annotations, {}, {NPU: 7})
    world = World(inventory=NodeInventory("n", found.devices))

    def of(name, is_soft):
        limits = {NPU: "1", f"{NPU}-memory": "1000", **({f"{NPU}-core": "10"} if is_soft else {})}
        annotations = {"huawei.com/vnpu-mode": "hami-core"} if is_soft else {}
        container = ContainerSpec("c", ContainerKind.APP, limits=limits)
        families = frozenset({"Ascend 310P"})
        return parse(PodManifest(name, "team", name, annotations, (container,), families=families))

    if held is not None:
        assert world.try_(of("held", held)) == [("a",)]
    assert world.try_(of("p", asked)) == wanted


def test_the_ledger_refuses_by_itself_what_is_not_alike():
    world = World()
    world.try_(pod("a", HALF))
    other = pod("b", QUARTER)
    empty = World().evaluator.place("n", other)
    plain = msgspec.structs.replace(empty.containers[0].shares[0], alike="")
    part = msgspec.structs.replace(empty.containers[0], shares=(plain,))
    with pytest.raises(OvercommitError, match="shares of 49152 MiB and others would be there together"):
        world.fleet.ledger.reserve(Grant("b", "team", "b", "n", (part,)))
    with pytest.raises(OvercommitError, match="shares of 24576 MiB and of 49152 MiB would be there together"):
        world.fleet.ledger.reserve(to_grant(empty, other, world.inventory))


def test_init_containers_and_those_after_them_ask_for_one_size():
    kinds = (ContainerKind.INIT, ContainerKind.APP)
    with pytest.raises(DialectError, match="ask for 49152 MiB and 24576 MiB: let them all ask for the same"):
        pod("p", HALF, QUARTER, kinds=kinds)
    assert World().try_(pod("p", HALF, HALF, kinds=kinds)) == [("x0",), ("x0",)]
