"""What a container gets with its devices, by the SR-IOV network device plugin's tables."""

import msgspec
import pytest
from tests.unit.core.sriov.sriov_builders import ACCELERATOR, config, entry, node, vf

from purser.core.sriov.answers import (
    ContainerDeviceFile,
    answer,
    cdi_annotation,
    cdi_kind_of,
    device_info,
    device_info_file,
    variable_name,
)
from purser.core.sriov.devices import RdmaDevice, SriovDevice, VdpaDevice
from purser.core.sriov.pools import make_pools

FILES = ("/dev/infiniband/issm2", "/dev/infiniband/umad2", "/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm")
VHOST = ("/dev/vhost-net", "/dev/net/tun")


def _pool(*devices, selectors=None, **fields):
    (pool,) = make_pools(config(entry("net", selectors, **fields)), node(*devices), {})
    return pool


def _answer(*devices, vhost=VHOST, selectors=None, **fields):
    pool = _pool(*devices, selectors=selectors, **fields)
    found = answer(pool, pool.members, vhost)
    information = msgspec.json.decode(found.variables["PCIDEVICE_INTEL_COM_NET_INFO"])
    return found, information


def _same(*paths):
    return tuple(ContainerDeviceFile(path, path) for path in paths)


def test_variables_are_named_by_the_resource():
    assert variable_name("intel.com/sriov_netdevice") == "PCIDEVICE_INTEL_COM_SRIOV_NETDEVICE"
    assert variable_name("openshift.io/sriov-net.a") == "PCIDEVICE_OPENSHIFT_IO_SRIOV-NET_A"


def test_a_plain_vf_is_named_and_gets_no_files():
    found, information = _answer(vf(0), vf(1))
    assert found.variables["PCIDEVICE_INTEL_COM_NET"] == "0000:03:02.0,0000:03:02.1"
    assert information == {id_: {"generic": {"deviceID": id_}} for id_ in ("0000:03:02.0", "0000:03:02.1")}
    assert found.device_files == ()


PROVIDERS = {
    "vfio": (
        vf(0, driver="vfio-pci", vfio_group="/dev/vfio/7", vfio_group_on_host="/dev/vfio/noiommu-7"),
        {},
        (*_same("/dev/vfio/vfio"), ContainerDeviceFile("/dev/vfio/7", "/dev/vfio/noiommu-7")),
        {"mount": "/dev/vfio/vfio", "dev-mount": "/dev/vfio/7"},
    ),
    "uio": (vf(0, driver="igb_uio", uio="/dev/uio3"), {}, _same("/dev/uio3"), {"mount": "/dev/uio3"}),
    "rdma": (
        vf(0, rdma=(RdmaDevice("mlx5_2", FILES),)),
        {"isRdma": True},
        _same(*FILES),
        {
            "uverbs": FILES[2],
            "umad": FILES[1],
            "issm": FILES[0],
            "rdma_cm": FILES[3],
            "rdma_dev": "mlx5_2",
        },
    ),
    "vdpa": (
        vf(0, vdpa=VdpaDevice("vdpa0", "vhost", "/dev/vhost-vdpa-0")),
        {"vdpaType": "vhost"},
        _same("/dev/vhost-vdpa-0"),
        {"mount": "/dev/vhost-vdpa-0"},
    ),
    "vhost": (vf(0), {"needVhostNet": True}, _same(*VHOST), {"net-mount": VHOST[0], "tun-mount": VHOST[1]}),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_device_brings_the_files_of_its_driver_and_selector(provider):
    device, selectors, files, said = PROVIDERS[provider]
    found, information = _answer(device, selectors=selectors)
    assert found.device_files == files
    assert information["0000:03:02.0"] == {"generic": {"deviceID": "0000:03:02.0"}, provider: said}


def test_rdma_is_only_given_where_the_selector_asks_for_it():
    found, information = _answer(vf(0, rdma=(RdmaDevice("mlx5_2", FILES),)))
    assert found.device_files == ()
    assert "rdma" not in information["0000:03:02.0"]


def test_without_vhost_files_on_the_node_none_is_given():
    found, information = _answer(vf(0), vhost=VHOST[:1], selectors={"needVhostNet": True})
    assert found.device_files == ()
    assert "vhost" not in information["0000:03:02.0"]


def test_a_file_of_several_devices_is_given_once_in_order():
    devices = [
        vf(n, driver="vfio-pci", vfio_group=f"/dev/vfio/{n}", vfio_group_on_host=f"/dev/vfio/{n}") for n in (0, 1)
    ]
    found, _ = _answer(*devices)
    assert found.device_files == _same("/dev/vfio/vfio", "/dev/vfio/0", "/dev/vfio/1")


def test_additional_information_of_a_device_counts_before_that_of_all():
    extra = {"*": {"a": "1", "b": "2"}, "0000:03:02.1": {"b": "3"}}
    _, information = _answer(vf(0), vf(1), additionalInfo=extra)
    assert information["0000:03:02.0"]["extra"] == {"a": "1", "b": "2"}
    assert information["0000:03:02.1"]["extra"] == {"a": "1", "b": "3"}


INFORMATION = {
    "a VF": (vf(0), {}, {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:02.0"}}),
    "a VF with RDMA": (
        vf(0, rdma=(RdmaDevice("mlx5_2"), RdmaDevice("mlx5_3"))),
        {"isRdma": True},
        {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:02.0", "rdma-device": "mlx5_2,mlx5_3"}},
    ),
    "vhost-vdpa": (
        vf(0, vdpa=VdpaDevice("vdpa0", "vhost", "/dev/vhost-vdpa-0")),
        {"vdpaType": "vhost"},
        {
            "type": "vdpa",
            "version": "1.1.0",
            "vdpa": {
                "parent-device": "vdpa0",
                "driver": "vhost",
                "pci-address": "0000:03:02.0",
                "path": "/dev/vhost-vdpa-0",
            },
        },
    ),
    "virtio-vdpa": (
        vf(0, vdpa=VdpaDevice("vdpa0", "virtio")),
        {"vdpaType": "virtio"},
        {
            "type": "vdpa",
            "version": "1.1.0",
            "vdpa": {"parent-device": "vdpa0", "driver": "virtio", "pci-address": "0000:03:02.0"},
        },
    ),
}


@pytest.mark.parametrize("what", INFORMATION)
def test_device_information_is_that_of_the_specification(what):
    device, selectors, said = INFORMATION[what]
    (member,) = _pool(device, selectors=selectors).members
    assert msgspec.json.decode(msgspec.json.encode(device_info(member))) == said


def test_device_information_has_a_file_of_its_own_per_device_of_a_network():
    assert device_info_file("intel.com/net", "0000:03:02.1") == "intel.com-net-0000:03:02.1-device.json"
    fpga = SriovDevice(id="0000:5e:00.0", address="0000:5e:00.0", type=ACCELERATOR, vendor="8086", device="0d90")
    assert device_info(_pool(fpga, deviceType="accelerator").members[0]) is None


@pytest.mark.parametrize(
    ("kind", "cdi"), [("netDevice", "net-pci"), ("accelerator", "net-accel"), ("auxNetDevice", "net-sf")]
)
def test_cdi_names_devices_by_prefix_and_class(kind, cdi):
    selectors = {"auxTypes": ["sf"]} if kind == "auxNetDevice" else {}
    pool = _pool(selectors=selectors, deviceType=kind, resourcePrefix="example.com")
    assert cdi_kind_of(pool) == f"example.com/{cdi}"
    assert cdi_annotation(pool, ["a", "b"]) == {
        f"cdi.k8s.io/example.com_{cdi}_net": f"example.com/{cdi}=a,example.com/{cdi}=b"
    }
    assert cdi_annotation(pool, []) == {}
