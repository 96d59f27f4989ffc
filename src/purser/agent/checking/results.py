"""What a check of a node says."""

from enum import StrEnum

import msgspec


class CheckState(StrEnum):
    """How well it is with what was looked at."""

    OK = "ok"
    ABSENT = "absent"
    """It is not there, and not needed as the node is set up."""
    WARNING = "warning"
    """GPUs are handed out, and something does not work as it could."""
    FAILED = "failed"
    """The node's GPUs, or one of them, cannot be handed out."""


class CheckResult(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    """What, in a word or two."""
    state: CheckState
    found: str
    advice: str = ""
    """What to do; empty where nothing has to be done."""
