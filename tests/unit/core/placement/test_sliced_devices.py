"""Devices divided by the profiles that their node lists, from registration to the annotations for the vendor's plugin:
HAMi's tables for Enflame (``enflame/device_test.go``)."""

import json
from functools import partial

import pytest
from tests.unit.core.placement.vendor_world import World, vendor_pod

from purser.core.dialects import DialectError, parse
from purser.core.dialects.hami_codec import decode_pod_devices
from purser.core.fleet import Fleet
from purser.core.grant.quota import QuotaLimits
from purser.core.model import NodeInventory
from purser.core.placement import Evaluator, Reason
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.core.vendors.catalogue import families_of
from purser.core.vendors.registration import vendor_devices

DRS, MEMORY, CORES = "enflame.com/drs-gcu", "enflame.com/gcu-memory", "enflame.com/gcu-core"
REGISTER, LIST = "enflame.com/gcu-drs-capacity", "hami.io/enflame-vgpu-devices-allocated"
PROFILES = {"6g.40gb": "2", "1g.6gb": "0", "3g.20gb": "1"}


def registered(devices, profiles=PROFILES):
    text = json.dumps({"devices": devices, "profiles": profiles})
    return vendor_devices(families_of(["Enflame DRS-GCU"]), "n", {REGISTER: text}, {}, {DRS: 6})


def gcus(count):
    return registered([{"index": str(at), "minor": str(10 + at), "capacity": 6} for at in range(count)]).devices


manifest = partial(vendor_pod, "Enflame DRS-GCU")


@pytest.mark.parametrize(
    ("asked", "profile", "number", "slices", "mib", "percent"),
    [
        ({DRS: 3}, "3g.20gb", "1", 3, 20480, 50),
        ({DRS: 1}, "1g.6gb", "0", 1, 6144, 17),
        ({DRS: 6}, "6g.40gb", "2", 6, 40960, 100),
        ({MEMORY: 20480, CORES: 40}, "3g.20gb", "1", 3, 20480, 50),
        ({MEMORY: 20}, "3g.20gb", "1", 3, 20480, 50),
        ({MEMORY: 6}, "1g.6gb", "0", 1, 6144, 17),
        ({MEMORY: 6145}, "3g.20gb", "1", 3, 20480, 50),
        ({MEMORY: 81}, "1g.6gb", "0", 1, 6144, 17),
        ({MEMORY: 6, CORES: 18}, "3g.20gb", "1", 3, 20480, 50),
        ({CORES: 51}, "6g.40gb", "2", 6, 40960, 100),
    ],
)
def test_the_smallest_profile_that_will_do_and_what_the_plugin_is_told(asked, profile, number, slices, mib, percent):
    told = World(gcus(1)).put(manifest("p", asked))
    ((device,), *_) = decode_pod_devices(told[LIST])
    assert (device.uuid, device.vendor) == ("n-enflame-drs-0", "Enflame")
    assert (device.memory_mib, device.cores_percent) == (mib, percent)
    assert json.loads(told["assigned-containers"]) == {
        "c0": {"allocated": False, "request": slices, "profileID": number, "profileName": profile}
    }
    assert {key.removeprefix("enflame.com/gcu-"): told[key] for key in told if "/gcu-" in key} == {
        "assigned": "false",
        "assigned-time": "5",
        "assigned-id": "0",
        "assigned-index": "0",
        "assigned-minor": "10",
        "request-size": str(slices),
    }


@pytest.mark.parametrize("asked", [{DRS: 2}, {MEMORY: 41}, {MEMORY: 80}, {MEMORY: 40961}])
def test_a_profile_that_no_device_has_is_no_profile(asked):
    assert World(gcus(2)).put(manifest("p", asked)) == {Reason.TYPE_MISMATCH}


def test_as_many_slices_are_given_as_there_are():
    world = World(gcus(1))
    assert [isinstance(world.put(manifest(f"p{at}", {DRS: 1})), dict) for at in range(7)] == [True] * 6 + [False]
    world.fleet.ledger.release("p0")
    assert world.put(manifest("large", {DRS: 3})) == {Reason.INSUFFICIENT_MEMORY}
    assert isinstance(world.put(manifest("small", {MEMORY: 4})), dict)


def test_containers_of_a_pod_have_profiles_of_their_own():
    told = World(gcus(2)).put(manifest("p", {DRS: 3}, {DRS: 6}))
    names = {name: each["profileName"] for name, each in json.loads(told["assigned-containers"]).items()}
    assert names == {"c0": "3g.20gb", "c1": "6g.40gb"}
    assert told["enflame.com/gcu-request-size"] == "3"


def test_a_quota_holds_the_profiles_memory():
    left = QuotaLimits(memory_mib=20480 + 6144 - 1)
    world = World(gcus(2))
    assert world.put(manifest("large", {DRS: 6}), left) == {Reason.QUOTA_NOT_FIT}
    assert isinstance(world.put(manifest("p", {DRS: 3}), left), dict)
    assert world.put(manifest("two", {DRS: 3}, {DRS: 1}), left) == {Reason.QUOTA_NOT_FIT}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({DRS: 3, MEMORY: 20}, "names a profile, or enflame.com/gcu-memory, which states what the profile must have"),
        ({CORES: 101}, 'gcu-core "101" is out of range'),
        ({MEMORY: "20Gi"}, 'gcu-memory "20Gi" is not an integer: must be a'),
    ],
)
def test_what_makes_no_sense_is_refused(asked, sentence):
    with pytest.raises(DialectError, match=sentence):
        parse(manifest("p", asked))


DEVICE = {"index": "0", "minor": "0", "capacity": 6}


@pytest.mark.parametrize(
    ("devices", "profiles", "sentence"),
    [
        ([DEVICE], {}, "0 profiles have a size in their name"),
        ([DEVICE], {"large": "0", "0g.6gb": "1", "4294967299g.20gb": "2"}, "0 profiles have a size"),
        ([DEVICE], {f"{at}g.6gb": "0" for at in range(1, 66)}, "65 profiles have a size"),
        ([DEVICE | {"capacity": 0}], PROFILES, "device 0 has an invalid number of slices ('0')"),
        ([DEVICE | {"capacity": "x"}], PROFILES, "device 0 has an invalid number of slices ('x')"),
        ([DEVICE, DEVICE], PROFILES, "'n-enflame-drs-0' appears twice"),
        ([[]], PROFILES, "cannot be read"),
    ],
)
def test_a_registration_that_makes_no_sense_says_so(devices, profiles, sentence):
    found = registered(devices, profiles)
    assert found.devices == ()
    assert sentence in found.problems[0]


def test_what_a_registration_may_leave_out_or_say_otherwise():
    """``TestGetNodeDevices_DRSAnnotation``, and what ``parseDRSCapacity`` takes."""
    found = registered(
        [{"capacity": "6"}, {"index": "x", "minor": 7, "capacity": 6.0}], {**PROFILES, "odd": "9"}
    ).devices
    assert [(each.uuid, each.slots, each.memory_mib, each.slicing.minor) for each in found] == [
        ("n-enflame-drs-0", 6, 40960, "0"),
        ("n-enflame-drs-1", 6, 40960, "7"),
    ]
    assert [each.name for each in found[0].slicing.profiles] == ["1g.6gb", "3g.20gb", "6g.40gb"]


def test_nodes_with_other_profiles_are_judged_each_by_itself():
    fleet = Fleet()
    for name, profiles in (("a", {"1g.6gb": "0", "6g.40gb": "1"}), ("b", PROFILES)):
        devices = registered([DEVICE], profiles).devices
        fleet.set_inventory(NodeInventory(name, devices))
    fits = Evaluator(fleet, DEFAULT_POLICIES).evaluate(parse(manifest("p", {DRS: 3})), ["a", "b"])
    assert fits.fits == ["b"]
