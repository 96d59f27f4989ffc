"""PCI devices as the kernel shows them."""

from pathlib import Path

import pytest

from purser.agent.host.sysfs import numa_node, parse_cpu_list, pci_address


def device(root: Path, address: str, **attributes: str) -> None:
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, value in attributes.items():
        (folder / name).write_text(value)


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:07:00.0", "0000:07:00.0"),
        ("0000:0F:00.0", "0000:0f:00.0"),
        ("00010000:C4:1f.7", "10000:c4:1f.7"),
        ("3B:00.0", "0000:3b:00.0"),
    ],
)
def test_nvmls_spelling_becomes_that_of_sysfs(bus_id: str, address: str) -> None:
    assert pci_address(bus_id) == address


@pytest.mark.parametrize("bus_id", ["", "07", "../../etc", "0000:07:00.8", "zz:07:00.0"])
def test_what_is_no_address_is_refused(bus_id: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        pci_address(bus_id)


def test_the_numa_node_is_read_by_nvmls_bus_id(tmp_path: Path) -> None:
    device(tmp_path, "0000:0f:00.0", numa_node="3\n")
    assert numa_node("00000000:0F:00.0", tmp_path) == 3


@pytest.mark.parametrize("text", ["-1\n", "", "none"])
def test_a_numa_node_that_the_kernel_does_not_know_is_none(tmp_path: Path, text: str) -> None:
    device(tmp_path, "0000:0f:00.0", numa_node=text)
    assert numa_node("0000:0f:00.0", tmp_path) is None


def test_a_device_that_is_not_there_has_no_numa_node(tmp_path: Path) -> None:
    assert numa_node("0000:0f:00.0", tmp_path) is None


@pytest.mark.parametrize(("text", "cpus"), [("", set()), ("5", {5}), ("0-1,4-5\n", {0, 1, 4, 5})])
def test_a_cpu_list_is_parsed(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


def test_a_broken_cpu_list_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list("0-x")
