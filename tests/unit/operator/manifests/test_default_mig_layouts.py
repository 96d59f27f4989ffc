"""The layouts that come along, read as the MIG worker reads them."""

import pytest
import yaml

from purser.agent.mig.hardware import Layout, MigGpu, OfferedProfile
from purser.agent.mig.layouts import LayoutError, read_layouts, wanted
from purser.core.device.pci import MIG_FAMILIES
from purser.core.mig.families import FAMILIES, MigFamily
from purser.operator.manifests.mig_manager import default_layouts, layouts

LAYOUTS = read_layouts(default_layouts())
WITHOUT = {"20b3": "A100 64GB", "230e": "H20 NVL16"}
"""Cards that can MIG and that docs/operator.md names as having no layouts of ours."""


def gpu(device: str) -> MigGpu:
    return MigGpu(index=0, device_id=f"0x{device.upper()}10DE")


def test_their_text_is_the_same_from_any_writer() -> None:
    """Without libyaml, too: with another text the hash of their ConfigMap would be another."""
    assert default_layouts() == yaml.safe_dump({"version": "v1", "mig-configs": layouts()}, sort_keys=False)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_layouts_fit_every_gpu_of_their_family(family: MigFamily) -> None:
    for device in family.devices:
        assert wanted(LAYOUTS, "all-disabled", [gpu(device)]) == {0: Layout(False)}
        assert wanted(LAYOUTS, "all-enabled", [gpu(device)]) == {0: Layout(True)}
        offers = {0: {profile: OfferedProfile(count) for profile, count in family.profiles.items()}}
        balanced = wanted(LAYOUTS, "all-balanced", [gpu(device)], offers)[0].devices
        assert balanced == tuple(sorted(name for name, count in family.balanced.items() for _ in range(count)))
        assert sum(family.balanced.values()) == len(wanted(LAYOUTS, "all-balanced", [gpu(device)])[0].devices)
        for profile, count in family.profiles.items():
            name = f"all-{profile.replace('+', '.')}"
            assert wanted(LAYOUTS, name, [gpu(device)], offers) == {0: Layout(True, (profile,) * count)}
            assert wanted(LAYOUTS, name, [gpu(device)]) == {0: Layout(True, (profile,) * count)}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_layout_of_other_gpus_is_refused_before_anything_is_touched_and_with_names_of_those_that_fit(
    family: MigFamily,
) -> None:
    same = [each for each in FAMILIES if each.devices == family.devices]
    own = {f"all-{profile.replace('+', '.')}" for each in same for profile in each.profiles}
    fitting = ", ".join(sorted({"all-balanced", "all-disabled", "all-enabled", *own}))
    for device in family.devices:
        for name in {*LAYOUTS} - own - {"all-disabled", "all-enabled", "all-balanced"} | {"all-nonsense"}:
            with pytest.raises(LayoutError) as refused:
                wanted(LAYOUTS, name, [gpu(device)])
            assert str(refused.value).endswith(f": use one of {fitting}")


def test_names_are_those_of_mig_parted() -> None:
    assert {"all-disabled", "all-enabled", "all-balanced", "all-1g.5gb", "all-1g.10gb.me"} <= LAYOUTS.keys()
    assert {"all-1g.24gb.me.all", "all-2g.48gb.me.all", "all-1g.24gb-me", "all-1g.24gb.gfx"} <= LAYOUTS.keys()


@pytest.mark.parametrize(
    ("offered", "name", "devices"),
    [
        ({"1g.23gb": 7, "2g.47gb": 3, "3g.93gb": 2}, "all-1g.23gb", ("1g.23gb",) * 7),
        ({"1g.23gb": 7, "2g.47gb": 3, "3g.93gb": 2}, "all-balanced", ("1g.23gb", "1g.23gb", "2g.47gb", "3g.93gb")),
        ({"1g.24gb": 7, "2g.47gb": 3, "3g.95gb": 2}, "all-balanced", ("1g.24gb", "1g.24gb", "2g.47gb", "3g.95gb")),
    ],
)
def test_the_profiles_of_a_gb200_decide(offered: dict[str, int], name: str, devices: tuple[str, ...]) -> None:
    offers = {0: {profile: OfferedProfile(count) for profile, count in offered.items()}}
    assert wanted(LAYOUTS, name, [gpu("2941")], offers) == {0: Layout(True, devices)}
    with pytest.raises(
        LayoutError, match=r"GPU 0 does not support 7g.189gb, only 1g.*: use one of all-1g.2"
    ) as refused:
        wanted(LAYOUTS, "all-7g.189gb", [gpu("2941")], offers)
    assert name in str(refused.value)
    assert "7g.189gb" not in str(refused.value).partition("use one of")[2]


@pytest.mark.parametrize("device", [device for devices in MIG_FAMILIES.values() for device in devices])
def test_every_gpu_that_can_mig_has_a_balanced_layout_but_those_that_the_documentation_names(device: str) -> None:
    if device in WITHOUT:
        with pytest.raises(LayoutError, match="has no entry for this node's GPUs"):
            wanted(LAYOUTS, "all-balanced", [gpu(device)])
    else:
        assert wanted(LAYOUTS, "all-balanced", [gpu(device)])[0].devices
