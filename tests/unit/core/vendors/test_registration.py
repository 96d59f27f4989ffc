"""Nodes as other vendors' device plugins describe them, from registration to grant."""

import json

import pytest

from purser.core.dialects import parse
from purser.core.fleet import node_state
from purser.core.ledger import Usage
from purser.core.model import ContainerKind, DeviceMode, Enforcement, NodeInventory
from purser.core.placement.place import place
from purser.core.placement.reasons import Refusal
from purser.core.pod.manifest import ContainerSpec, PodManifest
from purser.core.vendors import hami_nodes
from purser.core.vendors.catalogue import FAMILIES, FAMILY_NAMES
from purser.core.vendors.register_texts import RegisterError
from purser.core.vendors.registration import vendor_devices

DCUS = "DCU-a,4,32768,100,DCU-Z100L,0,true:DCU-b,4,32768,100,DCU-Z100L,1,false:"
NINE = "DCU-a,4,32768,100,Z100L,0,true,3,hami-core:"
NPUS = (
    '[{"id":"A1","count":16,"devmem":32768,"devcore":30,"type":"Ascend910A","health":true},'
    '{"id":"A2","index":1,"count":16,"devmem":32768,"devcore":30,"type":"Ascend910A","numa":1,"custominfo":{"NetworkID":1}}]'
)


def read(annotations, listed):
    return vendor_devices(FAMILIES, "n1", annotations, listed, listed)


def test_the_older_form_with_colons():
    found = read({"hami.io/node-dcu-register": DCUS}, {"hygon.com/dcunum": "8"}).devices
    assert [(each.uuid, each.index, each.memory_mib, each.slots, each.numa_nodes, each.healthy) for each in found] == [
        ("DCU-a", 0, 32768, 4, (0,), True),
        ("DCU-b", 1, 32768, 4, (1,), False),
    ]
    assert {(each.vendor, each.resource, each.mode, each.enforcement) for each in found} == {
        ("hygon", "hygon.com/dcunum", DeviceMode.SHARED, Enforcement.VENDOR)
    }


def test_nine_fields_have_the_index():
    (found,) = read({"hami.io/node-dcu-register": NINE}, {"hygon.com/dcunum": "8"}).devices
    assert found.index == 3


def test_json_leaves_out_what_is_zero_or_false():
    first, second = read({"hami.io/node-register-Ascend910A": NPUS}, {"huawei.com/Ascend910A": 32}).devices
    assert (first.index, first.numa_nodes, first.healthy, first.cores_percent) == (0, (0,), True, 100)
    assert (second.index, second.numa_nodes, second.healthy) == (1, (1,), False)


def test_devices_are_unhealthy_while_no_plugin_lists_them():
    (found,) = read({"hami.io/node-dcu-register": NINE}, {"hygon.com/dcunum": "0"}).devices
    assert (found.healthy, found.unhealthy_reason) == (False, "no device plugin reports it to kubelet")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (
            {"cambricon.com/mlu.smlu.vcore": "200", "cambricon.com/mlu.smlu.vmemory": "192"},
            [("n1-cambricon-mlu-0", 24576, 100, 100), ("n1-cambricon-mlu-1", 24576, 100, 100)],
        ),
        (
            {"mthreads.com/sgpu-core": "32", "mthreads.com/sgpu-memory": "192"},
            [("n1-mthreads-0", 49152, 100, 100), ("n1-mthreads-1", 49152, 100, 100)],
        ),
        ({"mthreads.com/sgpu-core": "31", "mthreads.com/sgpu-memory": "186"}, [("n1-mthreads-0", 49152, 100, 100)]),
        ({"metax-tech.com/gpu": 1}, [("n1-metax-0", 65536, 1, 100)]),
        ({"enflame.com/gcu": 0}, []),
    ],
)
def test_devices_that_follow_from_what_the_node_lists(listed, expected):
    found = read({}, listed).devices
    assert [(each.uuid, each.memory_mib, each.slots, each.cores_percent) for each in found] == expected


def test_of_counted_devices_as_many_are_healthy_as_kubelet_has():
    found = vendor_devices(FAMILIES, "n1", {}, {"metax-tech.com/gpu": 3}, {"metax-tech.com/gpu": 1}).devices
    assert [each.healthy for each in found] == [True, False, False]


SGPUS = (
    '[{"uuid":"G-1","model":"MXC500","totalDevCount":16,"totalCompute":100,"totalVRam":65536,"healthy":true,'
    '"qosPolicy":"best-effort","linkZone":1},{"uuid":"G-2","totalDevCount":16,"totalCompute":100,"numa":1}]'
)


def test_fields_of_a_vendors_own_are_read_as_hamis_and_places_are_the_indexes():
    """MetaX's, of HAMi's ``TestGetMetaxSDevices``."""
    first, second = read({"metax-tech.com/node-gpu-devices": SGPUS}, {"metax-tech.com/sgpu": 32}).devices
    assert (first.uuid, first.model, first.memory_mib, first.slots, first.healthy) == ("G-1", "MXC500", 65536, 16, True)
    assert (second.index, second.model, second.memory_mib, second.healthy) == (1, "MetaX sGPU", 0, False)
    assert second.numa_nodes == (1,)
    for text in ('[{"uuid":1}]', '[{"uuid":"a","totalVRam":"x"}]', '[["a"]]', '{"uuid":"a"}', '[{"uuid":"a b"}]'):
        found = read({"metax-tech.com/node-gpu-devices": text}, {"metax-tech.com/sgpu": 32})
        assert (found.devices, len(found.problems)) == ((), 1)


@pytest.mark.parametrize(
    ("instance_type", "ring"), [("inf2.48xlarge", True), ("Inf1.6xlarge", True), ("trn1.32xlarge", False), ("", False)]
)
def test_devices_are_in_a_ring_by_the_nodes_instance_type(instance_type, ring):
    listed = {"aws.amazon.com/neuron": 2, "aws.amazon.com/neuroncore": 4}
    labels = {"node.kubernetes.io/instance-type": instance_type}
    found = vendor_devices(FAMILIES, "n1", {}, listed, listed, (), labels).devices
    assert [(each.ring, each.cores, each.slots) for each in found] == [(ring, 2, 2)] * 2


def dcus(count, prefix="d"):
    return "".join(f"{prefix}{index},4,1000,100,Z100L,0,true:" for index in range(count))


@pytest.mark.parametrize(
    ("text", "own", "sentence"),
    [
        (dcus(2) * 2, (), "Hygon DCU: device 'd0' appears twice"),
        (dcus(2), {"d1"}, "Hygon DCU: device 'd1' appears twice"),
        (
            dcus(255),
            {"GPU-a"},
            "Hygon DCU: lists 255 devices in addition to 3 others: the maximum for a node is 256",
        ),
    ],
    ids=["within a family", "with the node's own", "too many"],
)
def test_what_does_not_go_with_other_devices_costs_its_family_alone(text, own, sentence):
    mlus = {"cambricon.com/mlu.smlu.vcore": "200", "cambricon.com/mlu.smlu.vmemory": "192"}
    found = vendor_devices(FAMILIES, "n1", {"hami.io/node-dcu-register": text}, mlus, mlus, own)
    assert [each.vendor for each in found.devices] == ["cambricon", "cambricon"]
    assert found.problems == (f"{sentence}; all devices of this family are ignored",)


@pytest.mark.parametrize(
    "text",
    ["DCU-a,4,1:", "DCU-a,x,32768,100,Z,0,true:", "DCU-a,4,-1,100,Z,0,true:", "DCU-a,-4,1,100,Z,0,true:",
     ",4,1,1,Z,0,true:", "DCU-a,4,1,100,Z,99999,true:", "x" * 300_000, "a,4,1,100,Z,0,true:" * 300,
     "a;b,4,1,100,Z,0,true:", f"DCU-a,4,1,100,{'Z' * 65},0,true:", "DCU-a,4,1,100,\x1b,0,true:"],
)  # fmt: skip
def test_a_registration_that_makes_no_sense_costs_its_family_alone(text):
    annotations = {"hami.io/node-dcu-register": text, "hami.io/node-register-Ascend910A": NPUS}
    found = read(annotations, {"hygon.com/dcunum": 8, "huawei.com/Ascend910A": 32})
    assert [each.uuid for each in found.devices] == ["A1", "A2"]
    (problem,) = found.problems
    assert problem.startswith("Hygon DCU: ") and len(problem) <= 240


@pytest.mark.parametrize(
    ("capacity", "allocatable", "problem"),
    [
        ("2 boards", "2", "MetaX GPU: metax-tech.com/gpu in the node's capacity is '2 boards'"),
        ("2", "two", "MetaX GPU: metax-tech.com/gpu in the node's allocatable resources is 'two'"),
        ("\x1b" + "9" * 300, "2", "MetaX GPU: metax-tech.com/gpu in the node's capacity is '\\x1b" + "9" * 63 + "'"),
    ],
)
def test_an_amount_that_is_no_quantity_is_quoted_with_its_place(capacity, allocatable, problem):
    listed = {"metax-tech.com/gpu": capacity}, {"metax-tech.com/gpu": allocatable}
    found = vendor_devices(FAMILIES, "n1", {}, *listed)
    ignored = "all devices of this family are ignored"
    assert found.problems == (f"{problem}, which is not a valid quantity; {ignored}",)


def test_an_amount_of_hamis_gpus_that_is_no_quantity_is_quoted():
    with pytest.raises(
        RegisterError, match=r"nvidia\.com/gpu in the node's allocatable resources is '8 x', which is not"
    ):
        hami_nodes.devices([], {"nvidia.com/gpu": "8 x"})


GOOD = "DCU-b,4,32768,100,Z,1,true:"


@pytest.mark.parametrize(
    "bad",
    ["DCU-a,-4,1,100,Z,0,true:", "DCU-a,4,-1,100,Z,0,true:", ",4,1,1,Z,0,true:", "DCU-a,4,1,100,Z,99999,true:",
     f"DCU-a,4,1,100,{'Z' * 65},0,true:", "DCU-a,4,1,100,\x1b,0,true:", "DCU-a,4,1:", "DCU-a,x,1,100,Z,0,true:"],
)  # fmt: skip
def test_a_device_that_makes_no_sense_costs_itself_alone(bad):
    found = read({"hami.io/node-dcu-register": bad + GOOD}, {"hygon.com/dcunum": 8})
    assert [each.uuid for each in found.devices] == ["DCU-b"]
    (problem,) = found.problems
    assert problem.startswith("Hygon DCU: ") and problem.endswith("; the device is ignored")


@pytest.mark.parametrize("bad", [3, None, [], {"id": 1}, {"id": "A0", "count": "16"}, {"id": "A0", "health": 1}])
def test_an_object_that_cannot_be_read_costs_itself_alone(bad):
    text = json.dumps([bad, *json.loads(NPUS)])
    found = read({"hami.io/node-register-Ascend910A": text}, {"huawei.com/Ascend910A": 32})
    assert [each.uuid for each in found.devices] == ["A1", "A2"]
    (problem,) = found.problems
    assert problem.startswith("Ascend 910A: the registration, device 0 cannot be read")


def test_a_device_with_more_slots_than_purser_lists_has_as_many_as_it_lists():
    found = read({"hami.io/node-dcu-register": GOOD.replace(",4,", ",1001,", 1)}, {"hygon.com/dcunum": 8})
    assert [each.slots for each in found.devices] == [1000]
    assert found.problems == (
        "Hygon DCU: device 'DCU-b' has 1001 slots: Purser shares a device among at most 1000 "
        "containers, so only 1000 slots are used. Register at most 1000",
    )


def place_in(family_limits, devices, usage=None):
    spec = ContainerSpec("c", ContainerKind.APP, limits={name: str(value) for name, value in family_limits.items()})
    request = parse(PodManifest("u", "team", "job", {}, (spec,), families=frozenset(FAMILY_NAMES)))
    return place(node_state(NodeInventory("n1", devices), usage or {}), request)


def test_a_share_by_template_is_placed_and_a_whole_device_is_refused_beside_it():
    devices = read({"hami.io/node-register-Ascend910A": NPUS}, {"huawei.com/Ascend910A": 32}).devices
    placement = place_in({"huawei.com/Ascend910A": 1, "huawei.com/Ascend910A-memory": 2000}, devices)
    (share,) = placement.containers[0].shares
    assert (share.uuid, share.memory_mib, share.cores_percent) == ("A1", 2184, 0)
    taken = {"A1": Usage(1, 2184, 0, 1)}
    refusal = place_in({"huawei.com/Ascend910A": 1}, devices, taken)
    assert isinstance(refusal, Refusal)
    assert place_in({"huawei.com/Ascend910A": 1, "huawei.com/Ascend910A-memory": 17476}, devices, taken)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_another_familys_devices_and_nvidias_are_of_no_use(family):
    other = next(each for each in FAMILIES if each is not family and each.capacity is not None)
    listed = dict.fromkeys(other.resources, 100)
    devices = read({}, listed).devices
    assert devices
    assert isinstance(place_in({family.resource: 1}, devices), Refusal)
    assert isinstance(place_in({"nvidia.com/gpu": 1}, devices), Refusal)
