"""The driver of a node without one."""

import threading
from collections.abc import Callable

from purser.agent.nvml.driver import (
    DeviceReading,
    DriverInfo,
    Gpu,
    MigCallError,
    MigContents,
    MigTrouble,
    Telemetry,
    XidEvent,
)
from purser.core.health.signs import DeviceFault, FaultKind


class NullDriver:
    """Zero devices, and the reason why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._closed = threading.Event()

    def info(self) -> DriverInfo:
        """Why there is no driver."""
        return DriverInfo(absent=self._reason)

    def scan(self) -> tuple[Gpu, ...]:
        """Nothing."""
        return ()

    def read(self, uuid: str) -> DeviceReading:
        """A reading with a fault, whatever the uuid."""
        return DeviceReading(uuid=uuid, fault=DeviceFault(FaultKind.GONE, "open_driver", self._reason))

    def telemetry(self, uuid: str) -> Telemetry:
        """Nothing."""
        return Telemetry(uuid=uuid)

    def mig_contents(self, uuid: str) -> MigContents:
        """See `Driver.mig_contents`."""
        raise MigCallError(MigTrouble.LOST, self._reason)

    def create_instance(self, uuid: str, number: int, start: int, size: int) -> int:
        """See `Driver.create_instance`."""
        raise MigCallError(MigTrouble.LOST, self._reason)

    def fill_instance(self, uuid: str, instance: int) -> None:
        """See `Driver.fill_instance`."""
        raise MigCallError(MigTrouble.LOST, self._reason)

    def destroy_instance(self, uuid: str, instance: int) -> None:
        """See `Driver.destroy_instance`."""
        raise MigCallError(MigTrouble.LOST, self._reason)

    def wait_event(self, timeout_ms: int) -> XidEvent | None:
        """Wait as a driver would on which nothing happens."""
        self._closed.wait(timeout_ms / 1000)
        return None

    def answering_uuids(self) -> tuple[str | None, ...]:
        """Nothing."""
        return ()

    def reopen(self) -> tuple[Gpu, ...]:
        """Nothing: call `open_driver` again to look for a driver that was installed since."""
        return ()

    def while_closed(self, action: Callable[[], None]) -> None:
        """Nothing is open."""
        action()

    def close(self) -> None:
        """End a running `wait_event`."""
        self._closed.set()
