"""The SR-IOV network device plugin's config.json: what it takes, what it refuses, what it passes over."""

import json

import pytest
from tests.unit.core.sriov.sriov_builders import config, entry

from purser.core.sriov.configuration import MAX_FILE_BYTES, MAX_POOLS, SriovConfigError, SriovDeviceType, sriov_config

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
    assert found.notes == ("the SR-IOV configuration: resourceList[2].SelectorObj is not known, and passed over",)
    assert sriov_config(FULL, "example.com").pools[0].resource == "example.com/intel_sriov_netdevice"


def test_names_that_kubelet_takes_are_taken():
    assert config(entry("sriov-net_0")).pools[0].name == "sriov-net_0"


REFUSED = {
    "a name with dots": ([entry("junk.net.0")], r"resourceList\[0\]: kubelet takes no resource intel.com/junk.net.0"),
    "a name that ends in a dash": ([entry("net-")], "kubelet takes no resource intel.com/net-"),
    "a name twice": ([entry("a"), entry("a")], r"resourceList\[1\]: intel.com/a is there twice"),
    "GPUs": ([entry("gpu", resourcePrefix="nvidia.com")], "is a resource of GPUs"),
    "a word for parts of GPUs": ([entry("vgpu-memory", resourcePrefix="volcano.sh")], "is a resource of GPUs"),
    "another vendor's devices": ([entry("vmlu", resourcePrefix="cambricon.com")], "is a resource of "),
    "Kubernetes' own": ([entry("net", resourcePrefix="networking.k8s.io")], "a prefix that is Kubernetes' own"),
    "a device type": ([entry(deviceType="gpu")], "deviceType is gpu; known are netDevice, accelerator, auxNetDevice"),
    "RDMA and vDPA in one selector": ([entry(selectors={"isRdma": True, "vdpaType": "vhost"})], "exclude each other"),
    "the same in the second": (
        [entry(selectors=[{"isRdma": True}, {"isRdma": True, "vdpaType": "vhost"}])],
        "exclude each other",
    ),
    "a vDPA type": ([entry(selectors={"vdpaType": "block"})], "vdpaType is block; known are vhost, virtio"),
    "no auxiliary type": ([entry(deviceType="auxNetDevice")], "needs auxTypes in each selector"),
    "an auxiliary type": ([entry(deviceType="auxNetDevice", selectors={"auxTypes": ["eth"]})], "auxTypes has eth"),
    "too many pools": ([entry(f"p{n}") for n in range(MAX_POOLS + 1)], "has 257 entries in resourceList"),
    "too many selectors": ([entry(selectors=[{}] * 2000)], "has 2000 selectors, more than 1024"),
    "a wrong type": ([entry(excludeTopology="yes")], "cannot be read"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_refuses_the_file(what):
    entries, message = REFUSED[what]
    with pytest.raises(SriovConfigError, match=message):
        config(*entries)


def test_rdma_and_vdpa_may_stand_in_separate_selectors():
    assert len(config(entry(selectors=[{"isRdma": True}, {"vdpaType": "vhost"}])).pools[0].selectors) == 2


def test_a_pool_whose_selectors_cannot_be_read_is_left_out_and_the_others_stay():
    """As upstream does, and it says so."""
    bad = [entry("a", selectors={"vendors": [8086]}), {"resourceName": "b"}, entry("c", selectors=[]), entry("d")]
    found = config(*bad)
    assert [pool.name for pool in found.pools] == ["d"]
    assert [note.rpartition(": ")[2] for note in found.notes] == [f"the pool {name} is left out" for name in "abc"]


def test_selectors_of_another_device_type_count_for_nothing_and_are_named():
    found = config(entry(deviceType="accelerator", selectors={"vendors": ["8086"], "pfNames": ["x"], "pfname": "y"}))
    assert found.pools[0].selectors[0].pf_names == ()
    assert [note.partition("selectors: ")[2] for note in found.notes] == [
        "pfNames counts for nothing with deviceType accelerator",
        "pfname is not known, and passed over",
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"resourceList": 3}', "[" * 500, b"\xff", "x" * MAX_FILE_BYTES * 2]
)
def test_what_is_no_configuration_raises_one_error(text):
    with pytest.raises(SriovConfigError):
        sriov_config(text)


def test_a_file_may_name_no_pool():
    assert sriov_config(json.dumps({})).pools == ()
