"""What is read of trees in the shape of real ones."""

import json

import pytest
from tests.reported_files import reported
from tests.unit.agent.sriov.sysfs_tree import INFINIBAND, HostTree

from purser.agent.sriov.memory import complete_from_memory, read_seen, seen_of, write_seen
from purser.agent.sriov.sysfs import RoutesError, SriovTree, read_devices
from purser.core.sriov.configuration import sriov_config
from purser.core.sriov.devices import RdmaDevice, VdpaDevice
from purser.core.sriov.pools import make_pools


@pytest.fixture
def host(tmp_path):
    return HostTree(tmp_path)


def _read(host):
    return read_devices(SriovTree(host.sys, host.root / "dev", host.root / "proc/1/net"))


def _devices(host):
    return {each.id: each for each in _read(host).devices}


def test_an_intel_pf_with_128_vfs(host):
    host.pf("0000:18:00.0", "ens1f0", 128, numa=1)
    host.pf("0000:18:00.1", "ens1f1", 0, numa=1)
    found = _devices(host)
    assert len(found) == 130
    assert [found[f"0000:18:00.{port}"].in_use for port in (0, 1)] == ["is a PF with VFs", ""]
    vf = found["0000:18:02.3"]
    assert (vf.vendor, vf.device, vf.driver, vf.numa_node) == ("8086", "154c", "iavf", 1)
    assert (vf.pf_address, vf.pf_name, vf.index) == ("0000:18:00.0", "ens1f0", 3)
    assert (vf.interfaces, vf.link_type, vf.in_use, vf.no_link) == (("ens1f0v3",), "ether", "", False)
    assert sorted(each.index for each in found.values() if each.pf_address) == list(range(128))


def test_a_mellanox_pf_in_switchdev_mode_with_rdma_and_subfunctions(host):
    pf = host.pf("0000:81:00.0", "", 4, vendor="15b3", device="1017", driver="mlx5_core", vf_driver="mlx5_core")
    host.interface("enp129s0f0_0", pf, port="pf0vf0")
    host.interface("enp129s0f0np0", pf, port="p0")
    host.rdma(host.pci / "0000:81:02.0", "mlx5_2", 2)
    host.interface("enp129s0f0sf88", host.subfunction(pf, 4, 88))
    host.subfunction(pf, 0, 0).rename(host.root / "gone")
    found = _devices(host)
    files = tuple(f"/dev/infiniband/{name}" for name in ("issm2", "umad2", "uverbs2", "rdma_cm"))
    assert found["0000:81:02.0"].rdma == (RdmaDevice("mlx5_2", files),)
    assert {found[host.vf_address("0000:81:00.0", n)].pf_name for n in range(4)} == {"enp129s0f0np0"}
    sf = found["mlx5_core.sf.4"]
    assert (sf.aux_type, sf.index, sf.address, sf.pf_address) == ("sf", 88, "0000:81:00.0", "0000:81:00.0")
    assert (sf.pf_name, sf.link_type, sf.in_use) == ("enp129s0f0np0", "ether", "")


def _pools_of(host, name=None, **selectors):
    """By a reported file, or by pools of these names with one selector each."""
    entries = [{"resourceName": each, "selectors": selector} for each, selector in selectors.items()]
    text = json.dumps({"resourceList": entries}) if name is None else reported(name).read_text()
    made = make_pools(sriov_config(text), _read(host), {})
    return {pool.config.name: [each.device.id for each in pool.members] for pool in made}


@pytest.mark.parametrize(
    "ports",
    [
        {"ens3f0_0": "", "eth7": "", "ens3f0np0": ""},
        {"ens3f0_0": "pf0vf0", "ens3f0np0": ""},
        {"ens3f0_0": "0", "ens3f0_1": "1", "ens3f0np0": ""},
        {"ens3f0_0": "", "ens3f0np0": "p0"},
        {"ens3f0_0": "c1pf0vf0", "ens3f0np0": "p0"},
    ],
    ids=["no port names", "the representor's alone", "numbers alone", "the port's alone", "both"],
)
def test_an_uplink_beside_representors(host, ports):
    pf = host.pf(
        "0000:3b:00.0", "", 4, vendor="15b3", device="101d", driver="mlx5_core", vf_driver="mlx5_core", vf_device="101e"
    )
    for name, port in ports.items():
        host.interface(name, pf, port=port)
    assert _pools_of(host, "no-port-names.json") == {"uplink-vf": [host.vf_address("0000:3b:00.0", n) for n in (0, 1)]}


@pytest.mark.parametrize(
    ("vendor", "device", "others", "pf_names", "numbers"),
    [
        ("15b3", "101e", ("ens3f0_0",), ["ens3f0np0#2-3"], (2, 3)),
        ("15b3", "101e", ("eth5", "eth6"), ["ens3f0np0#0,3"], (0, 3)),
        ("8086", "1889", ("ens3f0pf0vf1",), ["ens3f0np0"], (0, 1, 2, 3)),
        ("14e4", "1607", ("aaa", "zzz"), ["ens3f0np0#1"], (1,)),
    ],
    ids=["a range", "single numbers", "all", "names before and behind it"],
)
def test_an_uplink_beside_representors_of_any_vendor(host, vendor, device, others, pf_names, numbers):
    pf = host.pf("0000:3b:00.0", "", 4, vendor=vendor, driver="ice", vf_device=device)
    for name in others:
        host.interface(name, pf)
        (host.sys / "class/net" / name / "addr_assign_type").write_text("1")
    host.interface("ens3f0np0", pf)
    asked = {"vendors": [vendor], "devices": [device], "pfNames": pf_names}
    assert _pools_of(host, uplink=asked) == {"uplink": [host.vf_address("0000:3b:00.0", n) for n in numbers]}


def test_representors_have_made_up_addresses(host):
    pf = host.pf("0000:3b:00.0", "", 1, vendor="15b3", driver="mlx5_core", vf_driver="mlx5_core")
    for name, made_up in (("a_rep", "1"), ("uplink", "0")):
        host.interface(name, pf)
        (host.sys / "class/net" / name / "addr_assign_type").write_text(made_up)
    (vf,) = (each for each in _read(host).devices if each.pf_address)
    assert (vf.pf_name, vf.pf_aliases) == ("uplink", ("a_rep",))
    seen = seen_of(_read(host))
    for name in ("a_rep", "uplink"):
        (host.sys / "class/net" / name / "addr_assign_type").unlink()
        host.move(name)
    (vf,) = (each for each in complete_from_memory(_read(host), seen, ()).devices if each.pf_address)
    assert (vf.pf_name, vf.pf_aliases) == ("uplink", ("a_rep",))


def test_in_a_virtual_machine_a_vf_is_its_own_pf(host):
    """It has no PF there: its own interface and address stand for that, as in the SR-IOV network device plugin."""
    for place, name in (("05", "eth2"), ("06", "eth3"), ("07", "eth4")):
        host.interface(name, host.function(f"0000:00:{place}.0", device="154c", driver="iavf"))
    assert _pools_of(host, "own-interface.json") == {
        "own_name": ["0000:00:06.0"],
        "root": ["0000:00:05.0"],
        "vhost": ["0000:00:07.0"],
    }
    seen = seen_of(_read(host))
    host.move("eth3")
    found = {each.id: each.pf_name for each in complete_from_memory(_read(host), seen, ["0000:00:06.0"]).devices}
    assert found["0000:00:06.0"] == "eth3", "while a pod has it"


@pytest.mark.parametrize(
    ("driver", "vendor", "device", "selector"),
    [
        ("mlx5_core", "15b3", "101e", {"pfNames": ["ens6"]}),
        ("virtio_net", "1af4", "1041", {"rootDevices": ["0000:00:06.0"]}),
        ("ena", "1d0f", "ec20", {"vendors": ["1d0f"], "pfNames": ["ens6"]}),
        ("iavf", "8086", "1889", {"drivers": ["iavf"], "rootDevices": ["0000:00:06.0"]}),
    ],
)
def test_in_virtual_machines_of_all_kinds_a_device_is_found_by_its_own_name_and_address(
    host, driver, vendor, device, selector
):
    for place, name in (("05", "ens5"), ("06", "ens6")):
        host.interface(name, host.function(f"0000:00:{place}.0", vendor=vendor, device=device, driver=driver))
    everything = {"vendors": [vendor]}
    assert _pools_of(host, one=selector, others=everything) == {"one": ["0000:00:06.0"], "others": ["0000:00:05.0"]}


def test_infiniband(host):
    host.pf("0000:3b:00.0", "ibp59s0", 2, kind=INFINIBAND, vendor="15b3", driver="mlx5_core", vf_driver="mlx5_core")
    vf = host.pci / "0000:3b:02.0"
    host.rdma(vf, "mlx5_9", 9, p_key="0x7fff")
    found = _devices(host)["0000:3b:02.0"]
    assert (found.link_type, found.p_key, found.rdma[0].name) == ("infiniband", "0x7fff", "mlx5_9")
    assert _devices(host)["0000:3b:02.1"].p_key == ""


@pytest.mark.parametrize(
    ("driver", "bound", "found"),
    [
        ("vfio-pci", {"group": 12}, ("/dev/vfio/12", "/dev/vfio/12", "")),
        ("vfio-pci", {"group": 7, "no_iommu": True}, ("/dev/vfio/7", "/dev/vfio/noiommu-7", "")),
        ("vfio-pci", {}, ("", "", "")),
        ("igb_uio", {}, ("", "", "/dev/uio3")),
    ],
    ids=["a group", "no IOMMU", "no group", "userspace I/O"],
)
def test_device_files_of_drivers_of_userspace(host, driver, bound, found):
    host.function("0000:18:02.0")
    host.bind("0000:18:02.0", driver, **bound)
    device = _devices(host)["0000:18:02.0"]
    assert (device.vfio_group, device.vfio_group_on_host, device.uio) == found


def test_vdpa(host):
    host.pf("0000:18:00.0", "ens1f0", 2)
    host.vdpa(host.pci / "0000:18:02.0", 0, "vhost_vdpa")
    host.vdpa(host.pci / "0000:18:02.1", 1, "virtio_vdpa")
    found = _devices(host)
    assert found["0000:18:02.0"].vdpa == VdpaDevice("vdpa0", "vhost", "/dev/vhost-vdpa-0")
    assert found["0000:18:02.1"].vdpa == VdpaDevice("vdpa1", "virtio")


def test_what_the_host_uses_is_no_pods(host):
    for bus, name in (("18", "eth0"), ("19", "eth1"), ("1a", "eth2")):
        host.interface(name, host.function(f"0000:{bus}:00.0"))
    host.function("0000:1b:00.0", driver="")
    host.function("0000:5e:00.0", kind="120000", device="0d90", driver="dfl-pci")
    host.function("0000:c1:00.0", vendor="10de", kind="030200", driver="nvidia")
    bond, bridge = host.sys / "class/net/bond0", host.sys / "class/net/br0"
    bond.mkdir()
    bridge.mkdir()
    (bridge / "lower_bond0").symlink_to(bond)
    (bond / "lower_eth1").symlink_to(host.sys / "class/net/eth1")
    host.routes("eth0", "br0")
    uplink = "has the node's default route"
    assert {id_: each.in_use for id_, each in _devices(host).items()} == {
        "0000:18:00.0": uplink,
        "0000:19:00.0": uplink,
        "0000:1a:00.0": "",
        "0000:1b:00.0": "has no driver",
        "0000:5e:00.0": "",
    }


def test_default_routes_of_ipv6_and_over_subfunctions_are_the_nodes(host):
    path = host.function("0000:18:00.0", vendor="15b3", driver="mlx5_core")
    for number, name in ((2, "sf2"), (3, "sf3")):
        host.interface(name, host.subfunction(path, number, number))
    host.interface("eth0", path)
    host.interface("eth9", host.function("0000:19:00.0"))
    host.routes("sf2", v6=["eth0"])
    uplink = "has the node's default route"
    assert {id_: each.in_use for id_, each in _devices(host).items()} == {
        "0000:18:00.0": uplink,
        "0000:19:00.0": "",
        "mlx5_core.sf.2": uplink,
        "mlx5_core.sf.3": "",
    }
    (host.root / "proc/1/net/ipv6_route").unlink()
    assert _devices(host)["0000:18:00.0"].in_use == "", "a kernel without IPv6"


def test_without_routes_nothing_is_read(host):
    (host.root / "proc/1/net/route").unlink()
    with pytest.raises(RoutesError, match="cannot read the node's routes"):
        _read(host)


def test_a_port_has_no_link_only_where_that_can_be_seen(host):
    """A PF that a pod has taken, one that is down, a function with two ports: upstream once called these broken."""
    host.pf("0000:18:00.0", "ens1f0", 1)
    two = host.pf("0000:19:00.0", "ens2", 1)
    host.interface("ens2d1", two)

    def no_link(bus="18"):
        return _devices(host)[f"0000:{bus}:02.0"].no_link

    assert not no_link()
    host.carrier("ens1f0", 0)
    assert no_link()
    (host.sys / "class/net/ens1f0/carrier").unlink()
    assert not no_link()
    host.carrier("ens1f0", 0)
    host.move("ens1f0")
    assert not no_link()
    host.carrier("ens2", 0)
    assert not no_link("19")
    host.carrier("ens2d1", 0)
    assert no_link("19")


def test_vhost_files_are_those_of_the_node(host):
    assert _read(host).vhost_net == ()
    host.device_files("vhost-net", "net/tun")
    assert _read(host).vhost_net == ("/dev/vhost-net", "/dev/net/tun")


def test_nothing_but_garbage_is_no_device(host):
    host.function("0000:18:00.0", vendor="\xff", numa="far")
    (host.pci / "0000:19:00.0").symlink_to(host.root / "nowhere")
    (host.pci / "0000:1a:00.0").write_text("no folder")
    path = host.function("0000:1b:00.0")
    (path / "net").write_text("no folder")
    (path / "physfn").mkdir()
    found = _devices(host)
    assert sorted(found) == ["0000:18:00.0", "0000:1b:00.0"]
    assert found["0000:18:00.0"].numa_node is None
    assert _devices(HostTree(host.root / "empty")) == {}


def test_what_a_pod_takes_out_of_sight_is_remembered_while_it_holds_the_device(host, tmp_path):
    host.pf("0000:81:00.0", "ens3", 2, vendor="15b3", driver="mlx5_core", vf_driver="mlx5_core")
    vf = host.pci / "0000:81:02.0"
    host.rdma(vf, "mlx5_2", 2)
    before, file = _read(host), tmp_path / "state/seen.json"
    assert read_seen(file) == {}
    write_seen(file, seen_of(before))
    host.hide_rdma(vf, "mlx5_2")
    for name in ("ens3", "ens3v0", "ens3v1"):
        host.move(name)

    def after(held):
        return {each.id: each for each in complete_from_memory(_read(host), read_seen(file), held).devices}

    known = {each.id: each for each in before.devices}["0000:81:02.0"]
    for held in (["0000:81:02.0"], None):
        now = after(held)["0000:81:02.0"]
        assert (now.rdma, now.pf_name, now.link_type) == (known.rdma, "ens3", "ether")
    free = after([])["0000:81:02.0"]
    assert (free.rdma, free.pf_name) == ((), "ens3")
    (vf / "device").write_text("0x9999\n")
    assert after(None)["0000:81:02.0"].pf_name == ""
    file.write_text("{")
    assert read_seen(file) == {}
