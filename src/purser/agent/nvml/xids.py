"""Which Xid errors say that a card is bad, and for how long. Pure.

An Xid is the driver's error report for a device. NVIDIA's catalogue
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, "Resolution Bucket (Immediate Action)") says what
each one needs; the classes here follow its buckets:

- ``RESTART_APP`` and the secondary ones: the program did it, the card is fine: `XidClass.APPLICATION`. This is the
  set that NVIDIA's device plugin ignores by default. One of it, 109 (context switch timeout), has ``RESET_GPU`` in
  recent catalogues; it is kept, for those drivers also report the recovery action, and that decides then.
- ``RESET_GPU``, ``RESTART_BM``, ``WORKFLOW_XID_48``, ``WORKFLOW_NVLINK_ERR``: the card is unusable until it is reset
  or its node rebooted: `XidClass.UNTIL_RESET`.
- everything else, known or not: the card is suspect until it has answered its probes for a while:
  `XidClass.RECOVERS`. A driver that tells its recovery action overrides this in the probe (see `health`).
"""

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

DISABLE_VARIABLE = "DP_DISABLE_HEALTHCHECKS"
"""``all``, anything with ``xids`` in it, or a comma list of Xids: not to be watched."""

ENABLE_VARIABLE = "DP_ENABLE_HEALTHCHECKS"
"""The same words: to be watched, whatever the other variable and the defaults say."""


class XidClass(StrEnum):
    """What an Xid says about the card that reported it."""

    APPLICATION = "application"
    RECOVERS = "recovers"
    UNTIL_RESET = "until-reset"


_APPLICATION = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup after an earlier error",
    68: "NVDEC0 exception",
    109: "context switch timeout",
}
_UNTIL_RESET = {
    46: "GPU stopped processing",
    48: "double bit ECC error",
    62: "internal micro-controller halt",
    64: "memory remapping failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
}
_RECOVERS = {
    63: "memory remapping event",
    92: "high rate of single bit ECC errors",
    94: "contained memory error",
    154: "GPU recovery action changed",
}
_WORDS = _APPLICATION | _UNTIL_RESET | _RECOVERS


def classify(xid: int) -> XidClass:
    """The class of an Xid; one that the catalogue does not have is suspect, not fatal."""
    if xid in _APPLICATION:
        return XidClass.APPLICATION
    return XidClass.UNTIL_RESET if xid in _UNTIL_RESET else XidClass.RECOVERS


def describe(xid: int) -> str:
    """An Xid in words: ``Xid 79 (GPU has fallen off the bus)``."""
    words = _WORDS.get(xid)
    return f"Xid {xid} ({words})" if words else f"Xid {xid}"


class XidPolicy(msgspec.Struct, frozen=True):
    """Which Xids make a device unhealthy.

    The most particular word wins: an Xid named in the enabled list, then one named in the disabled list, then
    "all enabled", then "all disabled", then the default (all but application errors). So ``disable=all`` with
    ``enable=79`` watches 79 alone, which is what NVIDIA's device plugin documents and does not do.
    """

    all_disabled: bool = False
    disabled: frozenset[int] = frozenset()
    all_enabled: bool = False
    enabled: frozenset[int] = frozenset()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "XidPolicy":
        """The policy that the device plugin's two variables ask for; malformed entries in them count for nothing."""
        all_disabled, disabled = _parse(environment.get(DISABLE_VARIABLE, ""))
        all_enabled, enabled = _parse(environment.get(ENABLE_VARIABLE, ""))
        return cls(all_disabled=all_disabled, disabled=disabled, all_enabled=all_enabled, enabled=enabled)

    def watches(self, xid: int) -> bool:
        """Whether this Xid makes its device unhealthy."""
        if xid in self.enabled:
            return True
        if xid in self.disabled:
            return False
        if self.all_enabled or self.all_disabled:
            return self.all_enabled
        return classify(xid) is not XidClass.APPLICATION


def _parse(text: str) -> tuple[bool, frozenset[int]]:
    words = {word.strip() for word in text.lower().split(",")}
    everything = "all" in words or any("xids" in word for word in words)
    return everything, frozenset(int(word) for word in words if re.fullmatch(r"[0-9]{1,9}", word))
