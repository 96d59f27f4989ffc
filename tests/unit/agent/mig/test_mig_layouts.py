"""Layouts in mig-parted's form, and what they mean for GPUs."""

import pytest
from tests.unit.agent.mig.fake_gpus import A100

from purser.agent.mig import Layout, LayoutError, MigGpu
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
    with pytest.raises(LayoutError, match=r"says nothing about the GPUs of this node \(0x233010DE\)"):
        meant("of-many", "0x233010DE")


def test_a_name_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(LayoutError, match="there is no layout on: write one of mixed, none, of-many, of-one-kind"):
        meant("on", A100)


def test_only_some_names_that_apply_to_the_gpu_are_listed() -> None:
    with pytest.raises(LayoutError, match=r"there is no layout on: write one of mixed, none$"):
        meant("on", "0x233010DE")
    many = "\n".join(f"  l{number:03}: [{{devices: all, mig-enabled: false}}]" for number in range(500))
    layouts = read_layouts(f"version: v1\nmig-configs:\n{many}")
    with pytest.raises(LayoutError, match=r"write one of l000, .*, l015 \(and 484 more\)$"):
        wanted(layouts, "on", gpus(A100))
    with pytest.raises(LayoutError, match="there is no layout on: the file has none for the GPUs of this node"):
        wanted({}, "on", gpus(A100))


def test_gpus_without_mig_may_be_without() -> None:
    assert meant("none", A100, capable=False) == {}
    with pytest.raises(LayoutError, match="wants MIG on GPU 0"):
        meant("of-many", A100, capable=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "version: v2\nmig-configs: {}",
        "version: v1\nmig-configs: {a: [{devices: some, mig-enabled: true}]}",
        "version: v1\nmig-configs: {a: [{devices: [-1], mig-enabled: true}]}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1000000000}}]}",
        "x" * (MAX_LAYOUTS_BYTES + 1),
    ],
    ids=["empty", "a list", "no YAML", "another version", "devices", "a negative index", "too many", "too long"],
)
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="the layouts"):
        read_layouts(text)
