"""Readings of GPUs, each on a thread of its own: one that hangs holds up no other."""

import asyncio
from collections.abc import Callable, Iterable

from purser.agent.host.threads import run_in_thread
from purser.agent.nvml.driver import DeviceReading, Driver
from purser.core.decoding import brief
from purser.core.health.fabric import missing_domain
from purser.core.health.signs import DeviceFault, FaultKind, Signs


class DeviceReader:
    """Reads the GPUs of one driver."""

    def __init__(self, timeout_s: float, on_error: Callable[[Exception], None]) -> None:
        """``timeout_s``: how long a reading may take. ``on_error``: what no driver should raise."""
        self._timeout_s = timeout_s
        self._on_error = on_error
        self._pending: dict[str, asyncio.Future[DeviceReading]] = {}

    async def read(self, driver: Driver, uuid: str) -> DeviceReading:
        """One reading; a GPU whose call still hangs is not asked again, and faulty."""
        future = self._pending.get(uuid) or run_in_thread(lambda: driver.read(uuid), f"purser-read-{uuid[-4:]}")
        self._pending[uuid] = future
        done, _ = await asyncio.wait({future}, timeout=self._timeout_s)
        if not done:
            message = f"no answer within {self._timeout_s:g} s"
            return DeviceReading(uuid=uuid, fault=DeviceFault(FaultKind.NO_ANSWER, "read", message))
        del self._pending[uuid]
        try:
            return future.result()
        except Exception as error:  # the other GPUs' readings count
            self._on_error(error)
            return DeviceReading(uuid=uuid, fault=DeviceFault(FaultKind.UNKNOWN, "read", brief(repr(error))))


def signs_of(reading: DeviceReading, neighbours: Iterable[DeviceReading] = ()) -> Signs:
    """What a reading says of its GPU's health. ``neighbours``: of the other GPUs of its model."""
    # NVLink is not used in MIG mode.
    registrations = [each.registration for each in neighbours if each.registration is not None]
    domain = missing_domain(reading.registration, registrations) if reading.migs is None else ""
    return Signs(
        fault=reading.fault,
        recovery_action=reading.recovery_action,
        ecc_uncorrected=None if reading.ecc is None else reading.ecc.uncorrected,
        sram_threshold_exceeded=reading.sram_threshold_exceeded,
        remapped_rows=reading.remapped_rows,
        nvlinks=reading.nvlinks,
        slowdowns=reading.slowdowns,
        missing_domain=domain,
    )
