"""A device's health as a value that Xids and readings change. Pure: no clock, no driver.

A device turns unhealthy at once: by an Xid that the policy watches, or by a reading with a fault. It turns healthy
again, other than in NVIDIA's device plugin, where one transient error costs the card until the plugin restarts:

- after `GOOD_READINGS_TO_RECOVER` readings in a row without a fault, so that a flapping card stays out; and
- after an Xid of the until-reset class, only when the driver said in between that the card was lost, gone, or in need
  of a reset, and says so no longer. NVML has no counter of resets; this is the one trace that a reset leaves in it. A
  driver that never said so (one that reports no recovery action and kept answering) keeps the card out until the
  agent restarts.
"""

import msgspec

from purser.agent.nvml.driver import DeviceFault, DeviceReading, FaultKind
from purser.agent.nvml.xids import XidClass, XidPolicy, classify, describe

GOOD_READINGS_TO_RECOVER = 3
"""At the agent's probe interval of some seconds: longer than a failing card answers between two of its fits."""

_RESET_EVIDENCE = frozenset({FaultKind.LOST, FaultKind.GONE, FaultKind.RESET_REQUIRED})


_GRAVITY = {FaultKind.RESET_REQUIRED: 1, FaultKind.LOST: 2, FaultKind.GONE: 2}
"""Of faults: all others are 0."""


class DeviceHealth(msgspec.Struct, frozen=True):
    """Whether a device can be used, and what it has to show before it can be again."""

    fault: DeviceFault | None = None
    xid: int | None = None
    until_reset: bool = False
    reset_seen: bool = False
    good_readings: int = 0

    @property
    def healthy(self) -> bool:
        """Whether the device may take new work."""
        return self.fault is None and self.xid is None

    @property
    def reason(self) -> str:
        """Why the device is unhealthy, for people; empty while it is healthy."""
        parts = [describe(self.xid)] if self.xid is not None else []
        if self.fault is not None:
            parts.append(str(self.fault))
        return "; ".join(parts)

    @property
    def cause(self) -> str:
        """The one thing to tell people of: the Xid where the driver reported one, for the calls that fail afterwards
        fail because of it; else the call that failed. Empty while the device is healthy."""
        if self.xid is not None:
            return describe(self.xid)
        return str(self.fault) if self.fault is not None else ""

    def after_xid(self, xid: int, policy: XidPolicy) -> "DeviceHealth":
        """The health after the driver reported an Xid."""
        if not policy.watches(xid):
            return self
        if classify(xid) is XidClass.UNTIL_RESET:
            lost_now = self.fault is not None and self.fault.kind in _RESET_EVIDENCE
            return DeviceHealth(self.fault, xid, until_reset=True, reset_seen=lost_now)
        if self.until_reset:  # the graver error stays the reason
            return msgspec.structs.replace(self, good_readings=0)
        return msgspec.structs.replace(self, xid=xid, good_readings=0)

    def after_reading(self, reading: DeviceReading) -> "DeviceHealth":
        """The health after one more probe."""
        if reading.fault is not None:
            return msgspec.structs.replace(
                self,
                fault=_graver(self.fault, reading.fault),
                good_readings=0,
                reset_seen=self.reset_seen or reading.fault.kind in _RESET_EVIDENCE,
            )
        if self.healthy:
            return self
        good_readings = self.good_readings + 1
        if good_readings < GOOD_READINGS_TO_RECOVER:
            return msgspec.structs.replace(self, good_readings=good_readings)
        if self.until_reset and not self.reset_seen:
            return msgspec.structs.replace(self, fault=None, good_readings=good_readings)
        return DeviceHealth()


def _graver(before: DeviceFault | None, now: DeviceFault) -> DeviceFault:
    """The fault to tell of. A card that is out of reach fails differently with every call (lost to a scan, gone to a
    reading after it): what was told stays told until something worse is found, or the card is well."""
    if before is None or _GRAVITY.get(now.kind, 0) > _GRAVITY.get(before.kind, 0):
        return now
    return before
