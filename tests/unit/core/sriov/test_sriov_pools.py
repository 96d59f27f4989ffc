"""Selectors, pools, and to which of these a device belongs."""

import random

import pytest
from tests import tiers
from tests.unit.core.sriov.sriov_builders import ACCELERATOR, AUX, NET, config, entry, ids, node, vf

from purser.core.sriov.configuration import SriovDeviceType, SriovSelector
from purser.core.sriov.devices import RdmaDevice, SriovDevice, VdpaDevice
from purser.core.sriov.pools import UNSELECTED_TROUBLE, make_pools, selector_problems
from purser.core.sriov.preference import preferred_devices
from purser.core.sriov.selecting import SelectorFilter


def _by_pf(pf, index=-1, address=""):
    return vf(index, pf=pf, pf_address=address)


PF_NAMES = ("ens0", "ens2f0#1", "ens2f1#0,3-5,7")
ROOTS = ("0000:86:00.0", "0000:86:00.1#1", "0000:86:00.2#0-2,5,7")
TABLE = [
    ({"vendors": ("8086",)}, [vf(0)], [vf(0, vendor="15b3")]),
    ({"devices": ("10ed",)}, [vf(0, device="10ed")], [vf(0)]),
    ({"drivers": ("vfio-pci",)}, [vf(0, driver="vfio-pci")], [vf(0, driver="i40evf")]),
    ({"pci_addresses": ("0000:03:02.1",)}, [vf(1)], [vf(2)]),
    ({"acpi_indexes": ("101",)}, [vf(0, acpi_index="101")], [vf(0, acpi_index="102")]),
    ({"link_types": ("ether",)}, [vf(0)], [vf(0, link_type="infiniband")]),
    ({"aux_types": ("bar", "sf")}, [vf(0, aux_type="sf")], [vf(0, aux_type="baz")]),
    ({"p_keys": ("0x7fff",)}, [vf(0, p_key="0x7fff")], [vf(0, p_key="0xffff"), vf(0)]),
    ({"ddp_profiles": ("GTPv1-C/U IPv4/IPv6 payload",)}, [vf(0, ddp_profile="GTPv1-C/U IPv4/IPv6 payload")], [vf(0)]),
    ({"is_rdma": True}, [vf(0, rdma=(RdmaDevice("mlx5_2"),))], [vf(0)]),
    (
        {"vdpa_type": "vhost"},
        [vf(0, vdpa=VdpaDevice("vdpa0", "vhost"))],
        [vf(0), vf(0, vdpa=VdpaDevice("vdpa0", "virtio"))],
    ),
    (
        {"pf_names": PF_NAMES},
        [_by_pf("ens0"), _by_pf("ENS2F0", 1), *(_by_pf("ens2f1", index) for index in (0, 3, 4, 5, 7))],
        [_by_pf("eth0"), _by_pf(""), *(_by_pf("ens2f1", index) for index in (1, 2, 6))],
    ),
    (
        {"pf_names": ("ens3f0np0#0-1",)},
        [vf(1, "eth0", pf_aliases=("ens3f0np0", "eth1")), vf(0, "ens3f0np0")],
        [vf(2, "eth0", pf_aliases=("ens3f0np0",)), vf(1, "eth0", pf_aliases=("eth1",))],
    ),
    (
        {"root_devices": ("0000:03:02.5",)},
        [vf(5, "", pf_address="")],
        [vf(4, "", pf_address=""), vf(5)],
    ),
    (
        {"root_devices": ROOTS},
        [
            _by_pf("", 9, "0000:86:00.0"),
            _by_pf("", 1, "0000:86:00.1"),
            *(_by_pf("", index, "0000:86:00.2") for index in (0, 1, 2, 5, 7)),
        ],
        [_by_pf("", 1, "0000:a0:00.0"), *(_by_pf("", index, "0000:86:00.2") for index in (3, 4, 6))],
    ),
    ({"vendors": ("8086",), "drivers": ("iavf",)}, [vf(0)], [vf(0, vendor="15b3"), vf(0, driver="vfio-pci")]),
]


@pytest.mark.parametrize(("selector", "in_", "out"), TABLE, ids=[",".join(each[0]) for each in TABLE])
def test_a_selector_means_these_devices(selector, in_, out):
    found = SelectorFilter(SriovSelector(**selector))
    assert all(map(found.selects, in_))
    assert not any(map(found.selects, out))


def test_the_first_value_of_a_pf_decides_and_ignored_ones_are_reported():
    entries = [entry(selectors={"pfNames": ["ens1f0#0-1", "ens1f0#5", "ens2#x", "ens3#1,a-b"]})]
    node_ = node(vf(0), vf(5), vf(1, pf="ens3", bus="05"))
    (pool,) = make_pools(config(*entries), node_, {})
    assert ids(pool) == ["0000:03:02.0", "0000:05:02.1"]
    assert selector_problems(config(*entries)) == [
        "intel.com/sriov: pfNames: ens1f0#5 has no effect: only the first entry for each PF applies",
        "intel.com/sriov: pfNames: ens2#x does not name a PF or its VFs: must have the form PF, PF#1 or PF#0,2-7",
        "intel.com/sriov: pfNames: ens3#1,a-b does not name a PF or its VFs: must have the form PF, PF#1 or PF#0,2-7",
    ]


def test_a_device_is_of_the_first_pool_whose_selectors_mean_it():
    entries = entry("a", [{"pfNames": ["ens1f0#3"]}, {"pfNames": ["ens1f0#0-1"]}]), entry("b"), entry("c")
    a, b, c = make_pools(config(*entries), node(*map(vf, range(4)), vf(4, in_use="has the default route")), {})
    assert ids(a) == ["0000:03:02.3", "0000:03:02.0", "0000:03:02.1"]
    assert ids(b) == ["0000:03:02.2"]
    assert c.empty == (
        "selector 0: the 4 devices that it matches belong to intel.com/a, intel.com/b; "
        "1 more cannot be given to pods: 0000:03:02.4 has the default route"
    )


def test_types_are_kept_apart():
    fpga = SriovDevice(id="0000:5e:00.0", address="0000:5e:00.0", type=ACCELERATOR, vendor="8086", device="0d90")
    sf = SriovDevice(id="mlx5_core.sf.4", address="0000:81:00.0", type=AUX, vendor="15b3", device="1019", aux_type="sf")
    entries = (
        entry("net"),
        entry("f", deviceType="accelerator"),
        entry("s", {"auxTypes": ["sf"]}, deviceType="auxNetDevice"),
    )
    assert [ids(pool) for pool in make_pools(config(*entries), node(fpga, sf, vf(0)), {})] == [
        ["0000:03:02.0"],
        ["0000:5e:00.0"],
        ["mlx5_core.sf.4"],
    ]


@pytest.mark.parametrize(
    ("devices", "selectors", "said"),
    [
        ([], {}, "the node has no device of type netDevice"),
        (
            [vf(0, in_use="has the default route")],
            {},
            "no device of type netDevice can be given to pods: 0000:03:02.0 has the default route",
        ),
        (
            [vf(0), vf(1, driver="vfio-pci"), vf(2, vendor="15b3")],
            {"vendors": ["8086"], "drivers": ["i40evf"], "isRdma": True},
            "selector 0: drivers matches none of the 2 devices: found iavf, vfio-pci",
        ),
        ([vf(0)], {"pfNames": ["ens9"]}, "selector 0: pfNames does not match the only device: found ens1f0#0"),
        ([vf(0, pf="")], {"pfNames": ["ens9"]}, "selector 0: pfNames does not match the only device: found none"),
    ],
    ids=["none", "the host's", "another driver", "another PF", "no PF to be seen"],
)
def test_an_empty_pool_says_why(devices, selectors, said):
    (pool,) = make_pools(config(entry(selectors=selectors)), node(*devices), {})
    assert pool.empty == said


def test_what_a_container_holds_stays_in_its_pool_until_it_is_free():
    held = {"0000:03:02.0": "intel.com/b", "0000:03:02.1": "intel.com/gone", "0000:03:03.7": "intel.com/b"}
    a, b = make_pools(config(entry("a"), entry("b", {"drivers": ["vfio-pci"]})), node(vf(0), vf(1), vf(2)), held)
    assert ids(a) == ["0000:03:02.2"]
    assert [(each.device.id, each.trouble) for each in b.members] == [("0000:03:02.0", UNSELECTED_TROUBLE)]
    assert b.missing == ("0000:03:03.7",)
    assert b.empty == ""


@pytest.mark.parametrize(
    ("device", "trouble"),
    [
        (vf(0), ""),
        (vf(0, no_link=True), "the port of ens1f0 has no link"),
        (vf(0, driver="vfio-pci"), "its driver is vfio-pci, but it has no IOMMU group"),
        (vf(0, driver="vfio-pci", vfio_group="/dev/vfio/7"), ""),
        (vf(0, driver="igb_uio"), "its driver is igb_uio, but it has no device file"),
    ],
    ids=["well", "no link", "no group", "a group", "no uio"],
)
def test_health_is_what_the_device_shows(device, trouble):
    (pool,) = make_pools(config(entry()), node(device), {})
    assert pool.members[0].trouble == trouble


@pytest.mark.parametrize(
    ("selector", "device", "trouble"),
    [
        (
            {"vdpaType": "vhost"},
            vf(0, vdpa=VdpaDevice("vdpa0", "vhost")),
            "its vDPA device vdpa0 has no device file",
        ),
        ({"vdpaType": "vhost"}, vf(0, vdpa=VdpaDevice("vdpa0", "vhost", "/dev/vhost-vdpa-0")), ""),
        ({"vdpaType": "virtio"}, vf(0, vdpa=VdpaDevice("vdpa0", "virtio")), ""),
        ({}, vf(0, rdma=(RdmaDevice("mlx5_2"),)), ""),
        ({"isRdma": True}, vf(0, rdma=(RdmaDevice("mlx5_2", ("/dev/infiniband/uverbs2",)),)), ""),
        (
            {"isRdma": True},
            vf(0, rdma=(RdmaDevice("mlx5_2", ("/dev/infiniband/rdma_cm",)),)),
            "there is no uverbs device file for mlx5_2: is the kernel module ib_uverbs loaded?",
        ),
    ],
)
def test_health_is_also_what_containers_of_the_pool_are_to_get(selector, device, trouble):
    (pool,) = make_pools(config(entry("net", selector)), node(device), {})
    assert pool.members[0].trouble == trouble


def _random_selector(rng):
    pools = {
        "vendors": ["8086", "15b3", "1dd8"],
        "devices": ["154c", "1018", "101e"],
        "drivers": ["iavf", "vfio-pci", "mlx5_core"],
        "pfNames": ["ens1f0#0-9", "ens1f0", "ens2#3,5-40", "ens2", "ens3#x"],
        "rootDevices": ["0000:03:00.0#0-63", "0000:05:00.0"],
        "linkTypes": ["ether", "infiniband"],
        "pciAddresses": ["0000:03:02.1", "0000:05:03.0"],
    }
    chosen = rng.sample(sorted(pools), rng.randint(0, 3))
    return {each: rng.sample(pools[each], rng.randint(1, len(pools[each]))) for each in chosen}


_MISTAKES = (
    {"deviceType": "netdevice"},
    {"deviceType": 3},
    {"additionalInfo": {"*": {"token": 1}}},
    {"excludeTopology": "yes"},
    {"resourceName": "a.b"},
    {"resourceName": 7},
    {"resourceName": "p0"},
)
_UNREADABLE = {"vendors": 8086}
_WITHOUT_EFFECT = {
    NET: {"auxTypes"},
    ACCELERATOR: {"pfNames", "rootDevices", "linkTypes", "auxTypes"},
    AUX: {"pciAddresses"},
}


def _random_entries(rng):
    """Each with whether it is broken: one in four has a mistake, or a selector that cannot be read among others."""
    names = set()
    for place in range(rng.randint(1, 6)):
        selectors = [_random_selector(rng) for _ in range(rng.randint(1, 3))]
        kind = rng.choice([NET, NET, ACCELERATOR, AUX])
        if kind is AUX:
            selectors = [{**each, "auxTypes": ["sf"]} for each in selectors]
        found = entry(f"p{place}", selectors, deviceType=str(kind))
        mistake = rng.choice(_MISTAKES) if rng.random() < 0.2 else {}
        is_unreadable = rng.random() < 0.05
        if is_unreadable:
            selectors.insert(rng.randrange(len(selectors) + 1), _UNREADABLE)
        found |= mistake
        is_unreadable |= any(_is_emptied(each, _kind_of(found)) for each in selectors)
        is_broken = is_unreadable or (mistake.keys() != {"resourceName"} and bool(mistake))
        is_broken |= found["resourceName"] in {"a.b", 7, *names}
        yield found, is_broken
        if not is_broken:
            names.add(found["resourceName"])


def _kind_of(given):
    """As the file may have been meant: in any case. None: nobody knows."""
    return next((each for each in SriovDeviceType if each.lower() == str(given["deviceType"]).lower()), None)


def _is_emptied(selector, kind):
    """Whether none of the conditions counts with the type."""
    return bool(selector) and set(selector) <= _WITHOUT_EFFECT.get(kind, set())


def _means(given, device):
    """Whether an entry of the file means a device, be it broken: by each selector that can be read."""
    kind = _kind_of(given)
    unused = _WITHOUT_EFFECT.get(kind, set())
    readable = [each for each in given["selectors"] if each != _UNREADABLE and not _is_emptied(each, kind)]
    selectors = [{_snake(key): tuple(value) for key, value in each.items() if key not in unused} for each in readable]
    return device.type is kind and any(SelectorFilter(SriovSelector(**each)).selects(device) for each in selectors)


def _snake(key):
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in key)


def _random_node(rng):
    cards = (vf(n, "", "5e", type=ACCELERATOR, pf_address="", vendor=rng.choice(["8086", "15b3"])) for n in range(4))
    parts = (vf(n, "ens2", "81", type=AUX, aux_type="sf", driver="mlx5_core") for n in range(6))
    return node(
        *cards,
        *parts,
        *(
            vf(
                index,
                pf=pf,
                bus=bus,
                vendor=rng.choice(["8086", "15b3"]),
                device=rng.choice(["154c", "1018"]),
                driver=rng.choice(["iavf", "vfio-pci", "mlx5_core"]),
                link_type=rng.choice(["ether", "infiniband"]),
                in_use=rng.choice(["", "", "has no driver"]),
            )
            for pf, bus in (("ens1f0", "03"), ("ens2", "05"))
            for index in range(24)
        ),
    )


@pytest.mark.parametrize("seed", range(5 if tiers.IS_LONG else 1))
def test_every_device_is_of_the_first_pool_that_means_it_and_of_none_where_that_is_broken(seed):
    rng = random.Random(seed)
    for _ in range(200):
        entries = list(_random_entries(rng))
        found = config(*(each for each, _ in entries))
        told = {problem.partition("]")[0].partition("[")[2] for problem in found.problems}
        assert told == {str(place) for place, (_, is_broken) in enumerate(entries) if is_broken}
        machine = _random_node(rng)
        names = [device.id for device in machine.devices]
        held = {
            rng.choice([*names, "0000:09:00.1"]): f"intel.com/p{rng.randrange(7)}" for _ in range(rng.randint(0, 6))
        }
        pools = make_pools(found, machine, held)
        listed = [id_ for pool in pools for id_ in (*ids(pool), *pool.missing)]
        assert len(listed) == len(set(listed))
        assert all(held.get(id_, pool.resource) == pool.resource for pool in pools for id_ in ids(pool))
        assert all(bool(pool.empty) != bool(ids(pool) or pool.missing) for pool in pools)
        known = {pool.resource for pool in pools}
        assert {id_ for id_, resource in held.items() if resource in known} <= set(listed)
        owners = {id_: pool.config.name for pool in pools for id_ in ids(pool)}
        for device in machine.devices:
            if device.id not in held:
                first = next((each for each in entries if _means(each[0], device)), None)
                if first is not None and first[1]:  # a later one of the same name has what the broken one means
                    name = first[0]["resourceName"]
                    same = (each for each in entries if not each[1] and each[0]["resourceName"] == name)
                    first = next((each for each in same if _means(each[0], device)), None)
                owner = None if device.in_use or first is None else first[0]["resourceName"]
                assert owners.get(device.id) == owner, (entries, device)


def test_a_container_gets_devices_of_one_numa_node_and_of_different_ports():
    devices = [*map(vf, range(4)), *(vf(index, "ens2", "05") for index in range(2))]
    devices += [vf(index, "ens3", "81", numa_node=1) for index in range(4)]
    by_id = {each.id: each for each in devices}
    free = list(by_id)
    assert preferred_devices(1, free, [], by_id) == ["0000:03:02.0"]
    assert preferred_devices(3, free, [], by_id) == ["0000:03:02.0", "0000:05:02.0", "0000:03:02.1"]
    assert preferred_devices(2, free, ["0000:81:02.3"], by_id) == ["0000:81:02.3", "0000:81:02.0"]
    assert preferred_devices(7, free, [], by_id)[:6] == preferred_devices(6, free, [], by_id)
    assert preferred_devices(99, [*free, "gone"], [], by_id)[-1] == "gone"
    assert preferred_devices(0, free, [], by_id) == []
