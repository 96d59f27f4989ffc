"""The table of data-centre cards."""

import re

import pytest

from purser.core.device.pci import (
    _BY_SUBSYSTEM,
    _PRODUCTS,
    MIG_FAMILIES,
    as_label,
    can_mig,
    product_of_device,
    supports_mig,
)


@pytest.mark.parametrize(
    ("device", "subsystem", "product"),
    [
        ("2330", "", "NVIDIA-H100-80GB-HBM3"),
        ("2330", "16c1", "NVIDIA-H100-80GB-HBM3"),
        ("1eb8", "12a2", "Tesla-T4"),
        ("20b0", "1450", "NVIDIA-A100-PG509-200"),
        ("20b0", "144e", "NVIDIA-A100-SXM4-40GB"),
        ("25B6", "157E", "NVIDIA-A2"),
        ("25b6", "14a9", "NVIDIA-A16"),
        ("25b6", "", ""),
        ("2342", "1809", "NVIDIA-GH200-480GB"),
        ("ffff", "", ""),
        ("", "", ""),
    ],
)
def test_a_gpu_is_known_by_its_ids(device: str, subsystem: str, product: str) -> None:
    assert product_of_device(device, subsystem) == product


SANITISED = {
    "GRID A100X-4C (rev. 2)/x": "GRID-A100X-4C-rev.-2x",
    "a space separated string": "a-space-separated-string",
    "some(thing)else": "somethingelse",
    "some ( thing )else": "some-thing-else",
    "NVIDIA-TITAN-X-(Pascal)": "NVIDIA-TITAN-X-Pascal",
    " input  with multiple   spaces   ": "input-with-multiple-spaces",
    "some [ / thing / ]else": "some-thing-else",
    "some / thing /else": "some-thing-else",
    "some-thing.else_new": "some-thing.else_new",
}
"""All but the first: TestSanitise of NVIDIA's feature discovery."""


def test_models_are_spelled_as_feature_discovery_does() -> None:
    assert as_label("NVIDIA H100 80GB HBM3") == "NVIDIA-H100-80GB-HBM3"
    for name, label in SANITISED.items():
        assert as_label(name) == label
    for name in (*_PRODUCTS.values(), *_BY_SUBSYSTEM.values()):
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", as_label(name)), name


def test_ids_are_four_lower_case_hexadecimal_digits() -> None:
    ids = {
        *_PRODUCTS,
        *(device for devices in MIG_FAMILIES.values() for device in devices),
        *(each for pair in _BY_SUBSYSTEM for each in pair),
    }
    assert all(re.fullmatch(r"[0-9a-f]{4}", each) for each in ids)


def test_no_gpu_is_in_two_families() -> None:
    devices = [device for devices in MIG_FAMILIES.values() for device in devices]
    assert len(devices) > 30
    assert len(devices) == len(set(devices))


def test_names_of_models_say_the_same_as_ids() -> None:
    """A node whose discovery tells no PCI ids, only the label of its model."""
    named = {**{(device, ""): name for device, name in _PRODUCTS.items()}, **_BY_SUBSYSTEM}
    assert [name for (device, _), name in named.items() if supports_mig(as_label(name)) is not can_mig(device)] == []


@pytest.mark.parametrize(
    ("device", "can"),
    [("20B7", True), ("2348", True), ("1eb8", False), ("25b6", False), ("27b8", False), ("ffff", None), ("", None)],
)
def test_whether_a_gpu_can_mig(device: str, can: bool | None) -> None:
    assert can_mig(device) is can
