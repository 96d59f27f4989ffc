"""The SR-IOV network device plugin's config.json: what it takes, what it refuses, what it passes over."""

import json
import re

import pytest
from tests.reported_files import reported
from tests.unit.core.sriov.sriov_builders import AUX, config, entry, ids, node, vf

from purser.core.sriov.configuration import (
    MAX_FILE_BYTES,
    MAX_NOTES,
    MAX_POOLS,
    SriovConfigError,
    SriovDeviceType,
    sriov_config,
)
from purser.core.sriov.pools import make_pools

FULL = """
{"resourceList": [
  {"resourceName": "intel_sriov_netdevice",
   "selectors": {"vendors": ["8086"], "devices": ["154c", "10ed"], "drivers": ["i40evf", "ixgbevf"]}},
  {"ResourceName": "intel_fpga", "DEVICETYPE": "accelerator", "selectors": [{"devices": ["0d90"]}]},
  {"resourceName": "mlnx_rdma", "resourcePrefix": "mellanox.com", "excludeTopology": true,
   "selectors": [{"vendors": ["15b3"], "IsRdma": true, "NeedVhostNet": true}, {"pfNames": ["ens2f0#0-3,5"]}],
   "additionalInfo": {"*": {"token": "a"}}, "SelectorObj": null},
  {"resourceName": "sf", "deviceType": "auxNetDevice", "selectors": [{"auxTypes": ["sf"], "pfNames": ["ens3"]}]}
]}
"""


def test_a_file_in_all_spellings_is_read():
    found = sriov_config(FULL)
    assert [pool.resource for pool in found.pools] == [
        "intel.com/intel_sriov_netdevice",
        "intel.com/intel_fpga",
        "mellanox.com/mlnx_rdma",
        "intel.com/sf",
    ]
    net, fpga, rdma, sf = found.pools
    assert (net.device_type, fpga.device_type, sf.device_type) == tuple(SriovDeviceType)
    assert net.selectors[0].devices == ("154c", "10ed")
    assert (rdma.selectors[0].is_rdma, rdma.selectors[0].need_vhost_net, rdma.exclude_topology) == (True, True, True)
    assert rdma.selectors[1].pf_names == ("ens2f0#0-3,5",)
    assert rdma.additional_info == {"*": {"token": "a"}}
    assert found.notes == ("the SR-IOV configuration: resourceList[2].SelectorObj is unknown and ignored",)
    assert sriov_config(FULL, "example.com").pools[0].resource == "example.com/intel_sriov_netdevice"


def test_names_that_kubelet_takes_are_taken():
    assert config(entry("sriov-net_0")).pools[0].name == "sriov-net_0"


LEFT_OUT = {
    "a name with dots": (
        [entry("junk.net.0")],
        r"resourceList\[0\]: kubelet would reject resource intel.com/junk.net.0",
    ),
    "a name that ends in a dash": ([entry("net-")], "kubelet would reject resource intel.com/net-"),
    "a name twice": ([entry("a"), entry("a")], r"resourceList\[1\]: intel.com/a appears twice"),
    "GPUs": ([entry("gpu", resourcePrefix="nvidia.com")], "is a GPU resource"),
    "a word for parts of GPUs": ([entry("vgpu-memory", resourcePrefix="volcano.sh")], "is a GPU resource"),
    "another vendor's devices": ([entry("vmlu", resourcePrefix="cambricon.com")], "is a Cambricon MLU resource"),
    "Kubernetes' own": ([entry("net", resourcePrefix="networking.k8s.io")], "a prefix that is reserved for Kubernetes"),
    "a device type": (
        [entry(deviceType="gpu")],
        "deviceType is gpu, but must be one of netDevice, accelerator, auxNetDevice",
    ),
    "RDMA and vDPA in one selector": ([entry(selectors={"isRdma": True, "vdpaType": "vhost"})], "mutually exclusive"),
    "the same in the second": (
        [entry(selectors=[{"isRdma": True}, {"isRdma": True, "vdpaType": "vhost"}])],
        "mutually exclusive",
    ),
    "a vDPA type": ([entry(selectors={"vdpaType": "block"})], "vdpaType is block, but must be one of vhost, virtio"),
    "no auxiliary type": ([entry(deviceType="auxNetDevice")], "needs auxTypes in each selector"),
    "an auxiliary type": ([entry(deviceType="auxNetDevice", selectors={"auxTypes": ["eth"]})], "auxTypes contains eth"),
    "a device type in another case": (
        [entry(deviceType="netdevice")],
        "deviceType is netdevice, but must be one of",
    ),
    "a device type that is not text": ([entry(deviceType=["netDevice"])], "deviceType is a list, but must be a string"),
    "a wrong type": ([entry(excludeTopology="yes")], 'excludeTopology is the string "yes", but must be true or false'),
    "a name that is none": ([entry(3)], "resourceName is 3, but must be a string"),
    "wrong additional information": (
        [entry(additionalInfo={"*": {"token": 1}})],
        "additionalInfo is an object, but must be an object of objects",
    ),
    "one of two selectors": (
        [entry(selectors=[{}, {"vendors": 8086}])],
        r"selectors\[1\]: vendors is 8086, but must be a list in which each item is a string",
    ),
    "what has no name": ([{"selectors": [{}]}], "kubelet would reject resource"),
}


MEANS_NOTHING = {
    "a device type",
    "a device type that is not text",
    "RDMA and vDPA in one selector",
    "a vDPA type",
    "no auxiliary type",
    "an auxiliary type",
}
"""Of these nobody knows which devices they mean: they void no other pool."""


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_cannot_be_costs_its_pool_alone(what):
    entries, message = LEFT_OUT[what]
    found = config(*entries, entry("beside"), entry("sfs", {"auxTypes": ["sf"]}, deviceType="auxNetDevice"))
    served = [pool.name for pool in found.pools if not pool.is_refused]
    assert served == [*(each["resourceName"] for each in entries[:-1]), "beside", "sfs"]
    problem = found.problems[0]
    assert re.search(message, problem)
    assert problem.startswith("the SR-IOV configuration: resourceList[")
    assert re.search(r"must (be|contain)|use|combine", problem)
    known = what not in MEANS_NOTHING
    assert problem.endswith(f"The pool is ignored{', and so are the devices that its selectors match' * known}")
    of_type = "sfs" if "auxiliary" in what else "beside"
    devices = vf(0), vf(1), vf(2, type=AUX, aux_type="sf")
    given = {pool.config.name: ids(pool) for pool in make_pools(found, node(*devices), {})}
    assert bool(given[of_type]) is (not known or what == "the same in the second"), (
        "a later pool has only what nobody knows the broken one to mean"
    )


def test_a_file_that_is_all_mistakes_is_read_at_once_and_names_some_of_them():
    ranges = ",".join(["0-999999999", "9999999999999", "-", "1-"] * 5)
    bad = [entry("a.b", selectors={"pfNames": [f"ens1f0#{ranges}"] * 20}) for _ in range(MAX_POOLS)]
    found = config(*bad)
    assert (len(found.pools), len(found.problems)) == (MAX_POOLS, MAX_NOTES)
    assert not make_pools(found, node(*(vf(n) for n in range(64))), {})
    assert found.problems[-1].endswith("fix these first to see 237 more messages")
    assert len(config(3, None, "x" * 9000, [], entry("last")).problems) == 4


def test_of_too_much_the_first_is_served():
    found = config(*(entry(f"p{n}") for n in range(MAX_POOLS + 3)))
    assert len(found.pools) == MAX_POOLS
    assert found.problems == (
        "the SR-IOV configuration: resourceList has 259 entries, and those after the first 256 are ignored: use at "
        "most 256 entries",
    )
    found = config(entry("a"), entry("b", selectors=[{}] * 2000), entry("c"))
    assert [pool.name for pool in found.pools] == ["a", "c"]
    (problem,) = found.problems
    assert (
        "resourceList[1].selectors: all pools together may have at most 1024 selectors, which leaves at most "
        in problem
    )
    assert "1023 for this pool. The pool is" in problem


def test_a_pool_whose_selectors_cannot_be_read_is_left_out_and_the_others_stay():
    """As upstream does, and it says so."""
    bad = [entry("a", selectors={"vendors": [8086]}), {"resourceName": "b"}, entry("c", selectors=[]), entry("d")]
    found = config(*bad)
    assert [pool.name for pool in found.pools] == ["d"]
    assert [each.rpartition(". ")[2] for each in found.problems] == 3 * ["The pool is ignored"]


def test_an_entry_in_an_older_form_costs_itself_alone():
    """As a user's file has it: the pool that is valid is served."""
    found = sriov_config(reported("old-entry-voids-file.json").read_text())
    assert [(pool.resource, ids(pool)) for pool in make_pools(found, node(vf(0), vf(1)), {})] == [
        ("intel.com/kernel", [vf(0).id, vf(1).id])
    ]
    assert [re.split(": use|, but must", each)[0] for each in found.problems] == [
        "the SR-IOV configuration: resourceList[0]: deviceType is vfio",
        "the SR-IOV configuration: resourceList[0].selectors is null",
    ]


@pytest.mark.parametrize(
    ("selectors", "write"),
    [
        ({"pfName": ["ens9"]}, "selectors: unknown field pfName: use pfNames"),
        ({"vendors": ["8086"], "rootDevice": ["0000:09:00.0"]}, "unknown field rootDevice: use rootDevices"),
        ([{"pfNames": ["ens1f0#0"]}, {"vendor": ["15b3"]}], "selectors[1]: unknown field vendor: use vendors"),
        ({"colour": "red"}, "unknown field colour: use one of acpiIndexes, auxTypes"),
        ({"auxTypes": ["sf"]}, "no field that applies to deviceType netDevice: use at least one of acpiIndexes"),
    ],
)
def test_a_misspelt_condition_takes_no_device_of_the_node(selectors, write):
    """With what can be read of it alone, it would mean all of them, or more than was meant."""
    found = config(entry("odd", selectors), entry("rest", {"vendors": ["8086"]}))
    pools = {pool.config.name: ids(pool) for pool in make_pools(found, node(vf(0), vf(1)), {})}
    assert "odd" not in pools
    assert vf(1).id in pools["rest"]
    (problem,) = found.problems
    assert write in problem


def test_selectors_of_another_device_type_count_for_nothing_and_are_named():
    found = config(entry(deviceType="accelerator", selectors={"vendors": ["8086"], "pfNames": ["x"]}))
    assert found.pools[0].selectors[0].pf_names == ()
    assert [note.partition("selectors: ")[2] for note in found.notes] == [
        "pfNames has no effect with deviceType accelerator",
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"resourceList": 3}', "[" * 500, b"\xff", "x" * MAX_FILE_BYTES * 2]
)
def test_what_is_no_configuration_raises_one_error(text):
    with pytest.raises(SriovConfigError):
        sriov_config(text)


@pytest.mark.parametrize(
    ("members", "name"),
    [
        ('"resourceName": "a", "resourcename": "b"', "b"),
        ('"resourcename": "b", "resourceName": "a"', "a"),
        ('"RESOURCENAME": "c", "resourceName": "a", "resourcename": "b"', "b"),
        ('"resourcename": "b", "resourceName": "a", "RESOURCENAME": "c"', "c"),
        ('"resourceName": "a", "resourcename": null', "a"),
    ],
)
def test_of_several_spellings_of_a_key_the_last_in_the_file_counts(members, name):
    """As Go's encoding/json has it: which of them is exact does not matter."""
    [pool] = sriov_config(f'{{"resourceList": [{{{members}, "selectors": {{}}}}]}}').pools
    assert pool.name == name


def test_several_spellings_of_lists_and_maps_count_as_in_go():
    text = """{"resourceList": [{"resourceName": "a",
        "selectors": [{"vendors": ["1", "2"], "Vendors": ["3"], "drivers": ["x"], "Drivers": null, "isRdma": true,
            "isrdma": null}],
        "deviceType": "accelerator", "devicetype": "netDevice", "DEVICETYPE": null,
        "additionalInfo": {"x": {"a": "1"}, "*": {"b": "1"}}, "additionalinfo": {"*": {"c": "3"}}}]}"""
    [pool] = sriov_config(text).pools
    [selector] = pool.selectors
    assert (selector.vendors, selector.drivers, selector.is_rdma) == (("3",), (), True)
    assert (pool.device_type, pool.additional_info) == (SriovDeviceType.NET_DEVICE, {"x": {"a": "1"}, "*": {"c": "3"}})


def test_a_file_may_name_no_pool():
    assert sriov_config(json.dumps({})).pools == ()
