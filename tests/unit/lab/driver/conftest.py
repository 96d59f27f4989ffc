"""Simulated nodes, and drivers that are closed again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tiers import IS_LONG
from tests.unit.lab.driver.nvml_on_nodes import OpenNvml, opened_nvml

from purser.agent.nvml import Driver
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.compile import find_compiler

Create = Callable[..., SimulatedDriver]
Open = Callable[[SimulatedDriver], Driver]


@pytest.fixture(params=list(DriverKind) if IS_LONG or find_compiler() is None else [DriverKind.LIBRARY])
def kind(request: pytest.FixtureRequest) -> DriverKind:
    """Every test that uses this runs against the C library and, in the gate, against its stand-in."""
    if request.param is DriverKind.LIBRARY and find_compiler() is None:
        pytest.skip("no C compiler on this machine")
    return request.param


@pytest.fixture
def create(tmp_path: Path) -> Create:
    """Nodes in folders of their own."""

    def make(profile: str = "a100-40gb-8", node: str = "node-1", kind: DriverKind | None = None) -> SimulatedDriver:
        return SimulatedDriver.create(tmp_path / node, node, profile, kind=kind)

    return make


@pytest.fixture
def node(create: Create, kind: DriverKind) -> SimulatedDriver:
    return create(kind=kind)


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens a node's driver and closes it after the test."""
    drivers: list[Driver] = []

    def make(node: SimulatedDriver) -> Driver:
        drivers.append(node.open())
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def open_nvml() -> OpenNvml:
    """Opens pynvml's functions on a node, initialised."""
    return opened_nvml
