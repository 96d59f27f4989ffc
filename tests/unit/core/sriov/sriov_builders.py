"""Devices and configurations of SR-IOV, in few words."""

import json

from purser.core.sriov.configuration import SriovDeviceType, sriov_config
from purser.core.sriov.devices import NodeDevices, SriovDevice

NET, ACCELERATOR, AUX = SriovDeviceType


def vf(index, pf="ens1f0", bus="03", **fields):
    """A VF of an Intel X710."""
    address = f"0000:{bus}:{2 + index // 8:02x}.{index % 8}"  # ARI is of no matter here
    given = {
        "vendor": "8086",
        "device": "154c",
        "driver": "iavf",
        "numa_node": 0,
        "pf_address": f"0000:{bus}:00.0",
        "pf_name": pf,
        "link_type": "ether",
        "type": NET,
        "index": index,
    }
    return SriovDevice(id=address, address=address, **(given | fields))


def node(*devices, vhost=()):
    return NodeDevices(tuple(devices), tuple(vhost))


def config(*entries, **fields):
    return sriov_config(json.dumps({"resourceList": list(entries), **fields}))


def entry(name="sriov", selectors=None, **fields):
    return {"resourceName": name, "selectors": {} if selectors is None else selectors, **fields}


def ids(pool):
    return [each.device.id for each in pool.members]
