"""A card whose calls never return: the binding goes on with the others."""

import threading
from collections.abc import Callable, Iterator

import pytest

from purser.agent.nvml import Driver, DriverError, library
from purser.lab.driver import SimulatedDriver

pytestmark = pytest.mark.processes

DEADLINE_S = 20


class Hang:
    """Makes the temperature of one card a call that does not return before `release`."""

    def __init__(self, driver: library.LibraryDriver, uuid: str) -> None:
        nvml, handle = driver._nvml, driver._handles[uuid]
        self.entered, self.release = threading.Event(), threading.Event()
        temperature = nvml.nvmlDeviceGetTemperature

        def call(asked: object, sensor: int) -> int:
            if asked is handle:
                self.entered.set()
                self.release.wait(DEADLINE_S)
            return int(temperature(asked, sensor))

        nvml.nvmlDeviceGetTemperature = call


@pytest.fixture
def hung(
    node: SimulatedDriver, opened: Callable[[SimulatedDriver], Driver], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Driver]:
    """A driver with a reading of its first card under way."""
    monkeypatch.setattr(library, "PENDING_READINGS_TIMEOUT_S", 0.01)
    driver = opened(node)
    assert isinstance(driver, library.LibraryDriver)
    driver.scan()
    hang = Hang(driver, node.uuids[0])
    reading = threading.Thread(target=driver.read, args=(node.uuids[0],), daemon=True)
    reading.start()
    assert hang.entered.wait(DEADLINE_S)
    yield driver
    hang.release.set()
    reading.join(DEADLINE_S)


def finishes(call: Callable[[], object]) -> bool:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(DEADLINE_S / 2)
    return not thread.is_alive()


def test_the_other_gpus_are_read_and_scanned(node: SimulatedDriver, hung: Driver) -> None:
    assert finishes(lambda: hung.read(node.uuids[1]))
    assert hung.read(node.uuids[1]).fault is None
    assert finishes(hung.scan)


def test_reopening_is_refused_and_takes_nothing_away(node: SimulatedDriver, hung: Driver) -> None:
    with pytest.raises(DriverError, match=f"NVML cannot be shut down: calls for {node.uuids[0]} have not returned"):
        hung.reopen()
    assert hung.read(node.uuids[1]).fault is None


def test_closing_does_not_wait_for_it(hung: Driver) -> None:
    assert finishes(hung.close)
