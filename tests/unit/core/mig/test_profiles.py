"""Profiles: their names, and that the tables agree with one another."""

import pytest

from purser.core.device.pci import MIG_FAMILIES
from purser.core.mig import MIG_KINDS, MigKind, MigProfile, kind_of_device, profile_name
from purser.core.mig.choice import room_table
from purser.core.mig.families import FAMILIES
from purser.core.mig.profiles import compute_slices_of

KINDS = list(MIG_KINDS.values())
TOTAL_MIB = {
    "A30": 24576,
    "A100-40GB": 40960,
    "A100-80GB": 81920,
    "H100-80GB": 81559,
    "H100-94GB": 95830,
    "H100-96GB": 97871,
    "H200": 143771,
    "B200": 183359,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_names_are_what_go_nvlib_makes_of_the_memory(kind: MigKind) -> None:
    total = TOTAL_MIB[kind.name] << 20
    for profile in kind.profiles:
        suffix = "+me" if profile.takes_media else ""
        assert profile_name(profile.compute_slices, profile.memory_mib, total, suffix) == profile.name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_as_many_fit_as_the_layouts_of_the_mig_manager_have(kind: MigKind) -> None:
    """mig-parted's numbers."""
    room = room_table(kind)[0]
    fills = {profile.name: int(most) for profile, most in zip(kind.profiles, room, strict=True)}
    for family in (each for each in FAMILIES if set(each.devices) & set(kind.devices)):
        assert fills == family.profiles


def test_a_gpu_is_of_one_kind() -> None:
    devices = [device for kind in KINDS for device in kind.devices]
    assert len(devices) == len(set(devices))
    assert set(devices) < {device for devices in MIG_FAMILIES.values() for device in devices}
    assert kind_of_device("20B7") is MIG_KINDS["A30"]
    assert kind_of_device("2330") is MIG_KINDS["H100-80GB"]
    assert kind_of_device("1eb8") is None
    assert [compute_slices_of(device) for device in ("20b7", "2330", "3182", "2BB5")] == [4, 7, 7, 4]


@pytest.mark.parametrize(("slices", "start"), [(0, 0), (9, 0), (4, 3), (4, -1)])
def test_a_drivers_profile_lies_within_the_gpu(slices: int, start: int) -> None:
    with pytest.raises(ValueError, match=r"^X"):
        MigKind("X", slices, (MigProfile("2g.1gb", 1, 2, 2, (start,), 1, 1),))
