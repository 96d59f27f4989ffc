"""The monitor and drivers that misbehave in ways that a simulated library does not."""

import asyncio
import contextlib
import threading

import pytest
import structlog
from tests.unit.agent.builders import A, B
from tests.unit.agent.conftest import DEADLINE_S, eventually

from purser.agent.health import DeviceMonitor
from purser.agent.nvml import DeviceFault, DeviceReading, DriverError, DriverInfo, FaultKind, Gpu, NullDriver, XidEvent
from purser.agent.settings import AgentSettings


class Driver(NullDriver):
    """Two cards, and whatever the test makes of them."""

    def __init__(self):
        super().__init__("")
        self.hanging = {}
        self.faults = {}
        self.events = []
        self.scan_error = None
        self.scan_hangs = None
        self.unknown = {}
        self.reopened = 0
        self.reads = {A: 0, B: 0}

    def info(self):
        return DriverInfo(version="550")

    def scan(self):
        if self.scan_hangs:
            self.scan_hangs.wait()
        if self.scan_error:
            raise DriverError(self.scan_error)
        return tuple(
            Gpu(index=index, fault=self.unknown[uuid])
            if uuid in self.unknown
            else Gpu(index=index, uuid=uuid, name="T4", memory_mib=1)
            for index, uuid in enumerate((A, B))
        )

    def reopen(self):
        self.reopened += 1
        return self.scan()

    def read(self, uuid):
        self.reads[uuid] += 1
        if uuid in self.hanging:
            self.hanging[uuid].wait()
        return DeviceReading(uuid=uuid, fault=self.faults.get(uuid))

    def wait_event(self, timeout_ms):
        if self.events:
            event = self.events.pop(0)
            if isinstance(event, Exception):
                raise event
            return event
        return super().wait_event(10)


@contextlib.asynccontextmanager
async def monitoring(driver, on_health=lambda uuid, health: None, **settings):
    settings = {"probe_interval_s": 0.01, "probe_timeout_s": 0.05, "reopen_interval_s": 0.1, **settings}
    monitor = DeviceMonitor(AgentSettings(node_name="n", **settings), driver, on_health=on_health)
    task = asyncio.create_task(monitor.run(asyncio.Event()))
    try:
        await eventually(lambda: monitor.inventory.value is not None)
        yield monitor
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def healthy(monitor):
    return {device.uuid for device in monitor.inventory.value.devices if device.healthy}


async def test_a_card_whose_calls_hang_is_unhealthy_and_is_not_asked_again_until_it_answers():
    driver = Driver()
    driver.hanging[A] = threading.Event()
    async with monitoring(driver) as monitor:
        await eventually(lambda: healthy(monitor) == {B} and driver.reads[B] > 3)
        assert driver.reads[A] == 1
        assert "no answer within 0.05 s" in monitor.health[A].reason
        driver.hanging.pop(A).set()
        await eventually(lambda: healthy(monitor) == {A, B})


async def test_an_xid_of_nobody_knows_which_card_concerns_all():
    driver = Driver()
    async with monitoring(driver, probe_interval_s=60) as monitor:
        driver.events.append(XidEvent(uuid=None, xid=79))
        await eventually(lambda: healthy(monitor) == set())


async def test_calls_that_fail_after_an_xid_are_not_told_as_another_cause():
    driver, told = Driver(), []
    async with monitoring(driver, lambda uuid, health: told.append((uuid, health.cause))) as monitor:
        driver.events.append(XidEvent(uuid=A, xid=79))
        await eventually(lambda: healthy(monitor) == {B})
        driver.faults[A] = DeviceFault(FaultKind.LOST, "nvmlDeviceGetMemoryInfo", "GPU is lost")
        await eventually(lambda: "GPU is lost" in monitor.health[A].reason)
        driver.faults.clear()
        await eventually(lambda: healthy(monitor) == {A, B})
    assert told == [(A, "Xid 79 (GPU has fallen off the bus)"), (A, "")]


async def test_a_card_that_was_lost_before_the_agent_started_is_looked_for_until_it_is_back():
    driver = Driver()
    driver.unknown[A] = DeviceFault(FaultKind.LOST, "nvmlDeviceGetHandleByIndex", "GPU is lost")
    with structlog.testing.capture_logs() as logs:
        async with monitoring(driver, reopen_interval_s=0.01) as monitor:
            await eventually(lambda: healthy(monitor) == {B} and driver.reopened > 3)
            driver.unknown.clear()
            await eventually(lambda: healthy(monitor) == {A, B})
    assert len([entry for entry in logs if entry["log_level"] == "error"]) == 1


async def test_an_application_error_concerns_no_card():
    driver = Driver()
    async with monitoring(driver, probe_interval_s=60) as monitor:
        driver.events += [XidEvent(uuid=A, xid=31), XidEvent(uuid=B, xid=79)]
        await eventually(lambda: healthy(monitor) == {A})


@pytest.mark.parametrize("error", [DriverError("no events now"), ValueError("a bug")], ids=["refusal", "bug"])
async def test_a_driver_that_cannot_wait_is_given_a_rest_and_listened_to_again(monkeypatch, error):
    monkeypatch.setattr("purser.agent.health.DRIVER_RETRY_PERIOD_S", 0.01)
    driver = Driver()
    async with monitoring(driver, probe_interval_s=60) as monitor:
        driver.events += [error, XidEvent(uuid=A, xid=79)]
        await eventually(lambda: healthy(monitor) == {B})


async def test_a_driver_that_cannot_scan_is_asked_again_and_says_why_meanwhile():
    driver = Driver()
    driver.scan_error = "driver/library version mismatch"
    async with monitoring(driver) as monitor:
        assert "version mismatch" in monitor.trouble
        assert monitor.inventory.value.devices == ()
        driver.scan_error = None
        await eventually(lambda: healthy(monitor) == {A, B})
        assert monitor.trouble == ""


async def test_no_thread_uses_the_driver_after_the_monitor_has_stopped():
    driver = Driver()
    async with monitoring(driver):
        pass
    # Its last act is to say that it ends.
    await eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "purser-xids"])


@pytest.fixture(autouse=True)
def release_threads():
    yield
    # One that reads as the monitor is stopped still has to end; one that hangs does not.
    reading = [thread for thread in threading.enumerate() if thread.name.startswith("purser-read")]
    for thread in reading:
        thread.join(DEADLINE_S)
    assert not [thread for thread in reading if thread.is_alive()]


async def test_an_enumeration_that_hangs_leaves_what_is_known_and_is_waited_for_again(monkeypatch):
    driver = Driver()
    async with monitoring(driver, reopen_interval_s=60) as monitor:
        driver.scan_hangs = threading.Event()
        with monkeypatch.context() as impatient:
            impatient.setattr("purser.agent.health.SCAN_TIMEOUT_S", 0.05)
            await monitor.scan()
        assert "no answer within 0.05 s" in monitor.trouble
        await eventually(lambda: healthy(monitor) == {A, B} and driver.reads[A] > 3)
        driver.scan_hangs.set()
        await monitor.scan()
        assert monitor.trouble == ""
