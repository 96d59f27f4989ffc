"""Layouts in mig-parted's form, and what they mean for GPUs."""

import pytest
from tests.unit.agent.mig.fake_gpus import A100

from purser.agent.mig import Layout, LayoutError, MigGpu
from purser.agent.mig.hardware import OfferedProfile
from purser.agent.mig.layouts import MAX_LAYOUTS_BYTES, read_layouts, wanted

TEXT = """
version: v1
mig-configs:
  none:
    - {devices: all, mig-enabled: false}
  mixed:
    - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}
    - {devices: [1], mig-enabled: true, mig-devices: {3g.20gb: 1, 2g.10gb: 2}}
    - {devices: [2], mig-enabled: false}
  of-one-kind:
    - {devices: all, device-filter: "0x20b010de", mig-enabled: true, mig-devices: {1g.5gb: 1}}
  of-many:
    - {devices: all, device-filter: ["0x20B710DE", "0x20B010DE"], mig-enabled: true, mig-devices: {1g.5gb: 2}}
"""


def gpus(*device_ids: str, capable: bool = True) -> list[MigGpu]:
    return [MigGpu(index=index, device_id=each, capable=capable) for index, each in enumerate(device_ids)]


def meant(name: str, *device_ids: str, capable: bool = True) -> dict[int, Layout]:
    return wanted(read_layouts(TEXT), name, gpus(*device_ids, capable=capable))


def test_the_last_entry_that_concerns_a_gpu_counts() -> None:
    assert meant("mixed", A100, A100, A100) == {
        0: Layout(True, ("1g.5gb",) * 7),
        1: Layout(True, ("2g.10gb", "2g.10gb", "3g.20gb")),
        2: Layout(False),
    }


@pytest.mark.parametrize(("name", "count"), [("of-one-kind", 1), ("of-many", 2)])
def test_a_filter_chooses_gpus_by_their_kind(name: str, count: int) -> None:
    assert meant(name, "0x233010DE", A100) == {1: Layout(True, ("1g.5gb",) * count)}


def test_a_layout_that_concerns_no_gpu_is_a_mistake() -> None:
    with pytest.raises(LayoutError, match=r"has no entry for this node's GPUs \(0x233010DE\)"):
        meant("of-many", "0x233010DE")


def test_a_name_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(LayoutError, match="layout on does not exist: use one of mixed, none, of-many, of-one-kind"):
        meant("on", A100)


def test_only_some_names_that_apply_to_the_gpu_are_listed() -> None:
    with pytest.raises(LayoutError, match=r"layout on does not exist: use one of mixed, none$"):
        meant("on", "0x233010DE")
    many = "\n".join(f"  l{number:03}: [{{devices: all, mig-enabled: false}}]" for number in range(500))
    layouts = read_layouts(f"version: v1\nmig-configs:\n{many}")
    with pytest.raises(LayoutError, match=r"use one of l000, .*, l015 \(and 484 more\)$"):
        wanted(layouts, "on", gpus(A100))
    with pytest.raises(LayoutError, match="layout on does not exist: the file has no layout for this node's GPUs"):
        wanted({}, "on", gpus(A100))


def test_gpus_without_mig_may_be_without() -> None:
    assert meant("none", A100, capable=False) == {}
    with pytest.raises(LayoutError, match="enables MIG on GPU 0"):
        meant("of-many", A100, capable=False)


DISPLAY = MigGpu(index=1, device_id="0x1FB010DE", capable=False)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}", ""),
        ("{devices: all, mig-enabled: true}, {devices: [1], mig-enabled: false}", ""),
        (
            "{devices: all, mig-enabled: true}, {devices: [1], mig-enabled: true}",
            "enables MIG on GPU 1 .*, which does not support MIG",
        ),
        (
            '{devices: all, device-filter: "0x1fb010de", mig-enabled: true}',
            "enables MIG on GPU 1 .*, which does not support MIG",
        ),
    ],
    ids=["all", "off by its index", "on by its index", "of its kind alone"],
)
def test_a_gpu_that_cannot_be_cut_is_passed_over_by_what_is_for_all(entries: str, says: str) -> None:
    layouts = read_layouts(f"{{version: v1, mig-configs: {{l: [{entries}]}}}}")
    there = [*gpus(A100), DISPLAY]
    if says:
        with pytest.raises(LayoutError, match=says):
            wanted(layouts, "l", there)
    else:
        assert wanted(layouts, "l", there).keys() == {0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "version: v2\nmig-configs: {}",
        "version: v1\nmig-configs: []",
        "mig-configs: {a: [{devices: all, mig-enabled: true}]}",
        "x" * (MAX_LAYOUTS_BYTES + 1),
    ],
    ids=["empty", "a list", "no YAML", "another version", "no layouts", "no version", "too long"],
)
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="the layouts"):
        read_layouts(text)


GOOD = "[{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("[{devices: some, mig-enabled: true}]", "[0]: devices is some, but must be all, or a list of GPU indexes"),
        ("[{devices: [-1], mig-enabled: true}]", "[0]: devices is a list, but must be all, or a list of GPU indexes"),
        (
            "[{devices: all, mig-enabled: true, mig-devices: {2g.10gb: 1, 1g.5gb: 1000000000}}]",
            "[0]: mig-devices.1g.5gb is 1000000000: must be a whole number from 0 to 64",
        ),
        (
            f"[*x, {GOOD[1:-1]}]".replace("*x", "{devices: all}"),
            "[0] lacks mig-enabled, which must be true or false",
        ),
        (
            "[{devices: all, mig-enabled: yes, mig-device: {1g.5gb: 7}}]",
            "unknown field mig-device: did you mean mig-devices?",
        ),
        (
            "[{devices: all, mig-enabled: true, mig-devices: {1g.tengb: 7}}]",
            "1g.tengb is not a profile: use one such",
        ),
        (
            "[{devices: all, mig-enabled: true, mig-devices: [1g.5gb]}]",
            "mig-devices is a list, but must be a map of profiles to counts",
        ),
        ("[{devices: all, mig-enabled: 'true'}]", 'mig-enabled is the string "true", but must be true or false'),
        ("[3]", "[0] is 3, but must be an object"),
        ("3", "is 3: must be a list of at least one object"),
        ("[]", "is an empty list: must be a list of at least one object"),
    ],
)
def test_a_bad_layout_costs_itself_alone(bad: str, says: str) -> None:
    """And is named, with the file, where it is asked for."""
    text = f"version: v1\nmig-configs:\n  bad: {bad}\n  good: {GOOD}\n"
    layouts = read_layouts(text, "the layouts in /etc/config.yaml")
    assert wanted(layouts, "good", gpus(A100)) == {0: Layout(True, ("1g.5gb",) * 7)}
    with pytest.raises(LayoutError) as refused:
        wanted(layouts, "bad", gpus(A100))
    assert str(refused.value).startswith("the layouts in /etc/config.yaml: mig-configs.bad")
    assert says in str(refused.value)
    with pytest.raises(LayoutError, match=r"layout on does not exist: use layout good$"):
        wanted(layouts, "on", gpus(A100))


@pytest.mark.parametrize(
    ("name", "offered", "says"),
    [
        ("mixed", {"1g.5gb": 7, "2g.10gb": 3}, "GPU 1 does not support 3g.20gb, only 1g.5gb, 2g.10gb: use one of"),
        ("of-one-kind", {"1g.6gb": 4}, "GPU 0 does not support 1g.5gb, only 1g.6gb: use layout none"),
        ("mixed", {"1g.5gb": 6, "2g.10gb": 3, "3g.20gb": 2}, "GPU 0 has room for only 6x 1g.5gb, not 7x: use"),
    ],
)
def test_what_the_profiles_of_the_gpu_contradict_is_refused(name: str, offered: dict[str, int], says: str) -> None:
    with pytest.raises(LayoutError) as refused:
        most = {profile: OfferedProfile(count) for profile, count in offered.items()}
        wanted(read_layouts(TEXT), name, gpus(A100, A100), dict.fromkeys((0, 1), most))
    assert str(refused.value).startswith(says)
    assert wanted(read_layouts(TEXT), name, gpus(A100, A100), {0: {}}), "a driver that does not say contradicts nothing"


A100_OFFERS = {
    "1g.5gb": OfferedProfile(7, 1, 4864),
    "1g.10gb": OfferedProfile(4, 1, 9856),
    "2g.10gb": OfferedProfile(3, 2, 9856),
    "3g.20gb": OfferedProfile(2, 3, 19968),
    "4g.20gb": OfferedProfile(1, 4, 19968),
    "7g.40gb": OfferedProfile(1, 7, 40192),
}


@pytest.mark.parametrize(
    ("devices", "says"),
    [
        ("1g.5gb: 7", ""),
        ("1g.10gb: 4", ""),
        ("3g.20gb: 1, 4g.20gb: 1", ""),
        ("1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1", ""),
        ("1g.5gb: 5, 3g.20gb: 1", "has 7 compute slices, but 5x 1g.5gb, 1x 3g.20gb require 8"),
        ("1g.5gb: 3, 1g.10gb: 4", "has 40192 MiB, but 4x 1g.10gb, 3x 1g.5gb require 54016"),
        ("7g.40gb: 1, 1g.5gb: 1", "has 7 compute slices"),
    ],
)
def test_more_than_the_gpu_has_in_all_is_refused(devices: str, says: str) -> None:
    entry = f"{{devices: all, mig-enabled: true, mig-devices: {{{devices}}}}}"
    layouts = read_layouts(f"version: v1\nmig-configs: {{a: [{entry}]}}")
    if not says:
        assert wanted(layouts, "a", gpus(A100), {0: A100_OFFERS})
        return
    with pytest.raises(LayoutError) as refused:
        wanted(layouts, "a", gpus(A100), {0: A100_OFFERS})
    assert says in str(refused.value)
