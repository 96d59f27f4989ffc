"""Which failing calls of NVML keep pods off a GPU, and which only leave something unknown."""

import inspect
import re
from pathlib import Path

import pynvml
import pytest
from tests.unit.agent.inventory.test_kinds_of_hardware import Node

import purser.agent
from purser.agent.nvml import failures
from purser.agent.nvml.failures import CALL_FAILURES, FailureMeaning
from purser.core.sharing import MigStrategy
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.node_mig import create_mig, set_mig

UNKNOWN, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, LOST = 999, 3, 4, 13, 15
NO_NUMBER_OF_NVMLS = 12345

SIMULATED_FAILURES = 16
"""Of one GPU at a time; here each call by its name with and without its version."""


def test_every_call_of_the_agent_says_what_its_failure_means() -> None:
    """And no other call does."""
    sources = set(Path(inspect.getfile(purser.agent)).parent.rglob("*.py")) - {Path(inspect.getfile(failures))}
    named = {name for path in sources for name in re.findall(r"\bnvml[A-Z]\w+(?!\w|:)", path.read_text())}
    calls = {each for each in named if inspect.isfunction(getattr(pynvml, each.removesuffix("_v2"), None))}
    assert calls == CALL_FAILURES.keys()


def of(*meanings: FailureMeaning) -> list[str]:
    return sorted(
        call for call, failure in CALL_FAILURES.items() if failure.meaning in meanings and call.startswith("nvmlDevice")
    )


def cut(node: SimulatedDriver) -> None:
    """One of the GPUs, so that all calls are made."""
    set_mig(node.folder, 3, enabled=True)
    create_mig(node.folder, 3, "1g.5gb")


async def after(folder: Path, *failing: str, code: int) -> Node:
    """An agent after all of these calls failed on every GPU."""

    def prepare(node: SimulatedDriver) -> None:
        cut(node)
        for index in range(4):
            for call in failing:
                node.fail_call(index, re.sub(r"_v\d$", "", call), code)
                node.fail_call(index, call, code)

    return await Node(folder, "mixed-4", prepare, mig_strategy=MigStrategy.MIXED).looked_at()


WHOLE = [("gpu", 0, 2), ("gpu", 1, 2), ("gpu", 2, 2)]
ALL = [*WHOLE, ("mig-1g.5gb", 3, 1)]


@pytest.mark.gate
@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, UNKNOWN, NO_NUMBER_OF_NVMLS])
async def test_a_gpu_of_which_no_property_is_known_is_healthy_and_listed(tmp_path: Path, code: int) -> None:
    properties, at_once = of(FailureMeaning.PROPERTY), SIMULATED_FAILURES // 2
    for start in range(0, len(properties), at_once):
        calls = properties[start : start + at_once]
        node = await after(tmp_path / str(start), *calls, code=code)
        found, parts = node.devices(), "nvmlDeviceGetAttributes_v2" in calls
        assert found == (WHOLE if parts else ALL), f"MIG devices without an identity are left out: {calls}"
        assert node.news == [], calls


@pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
@pytest.mark.parametrize("call", of(FailureMeaning.SIGN_OF_LIFE, FailureMeaning.WHERE_SUPPORTED))
async def test_a_gpu_that_lacks_what_shows_life_is_healthy(tmp_path: Path, call: str, code: int) -> None:
    node = await after(tmp_path, call, code=code)
    assert all(each.healthy for each in node.inventory().devices)


@pytest.mark.parametrize(
    ("calls", "code"),
    [
        (of(FailureMeaning.REQUIRED, FailureMeaning.WHERE_SUPPORTED, FailureMeaning.SIGN_OF_LIFE), UNKNOWN),
        (of(FailureMeaning.REQUIRED, FailureMeaning.WHERE_SUPPORTED), NO_PERMISSION),
        (["nvmlDeviceGetBrand"], LOST),
    ],
    ids=["unknown", "without permission", "lost"],
)
async def test_a_failure_that_is_the_gpus_keeps_pods_off(tmp_path: Path, calls: list[str], code: int) -> None:
    for call in calls:
        node = await after(tmp_path / call, call, code=code)
        assert node.monitor.gpus[3].fault or node.news, call
        assert not any(each.healthy for each in node.inventory().devices if each.index == 3), call


def test_what_was_read_of_a_gpu_once_stays_while_it_cannot_be_read(tmp_path: Path) -> None:
    node = SimulatedDriver.create(tmp_path, "n", "mixed-4", kind=DriverKind.PYTHON)
    driver = node.open()
    before = driver.scan()
    for call in ("PciInfo", "MinorNumber", "CudaComputeCapability", "TopologyCommonAncestor"):
        node.fail_call(0, f"nvmlDeviceGet{call}", NOT_SUPPORTED)
    [first, *others] = driver.scan()
    known = before[0]
    assert (first.pci_bus_id, first.numa_node, first.minor) == (known.pci_bus_id, known.numa_node, known.minor)
    assert (first.fault, first.compute_capability) == (None, "7.5")
    assert others[0].links[1:] == before[1].links[1:]
