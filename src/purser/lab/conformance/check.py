"""What a check is, how it ends, and what is said about it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from purser.lab.conformance.subject import Subject

_MAX_DETAIL_CHARACTERS = 400


class CannotRun(Exception):
    """The kit could not begin: what was given cannot be started, reached or used. The message says what to do."""


class CheckFailed(Exception):
    """The plugin does not do what the check asks; the message says what it did instead."""


class CheckSkipped(Exception):
    """The check does not apply, or cannot be made this way; the message says why."""


class CheckOutcome(StrEnum):
    """How a check ended."""

    PASSED = "pass"
    FAILED = "fail"
    SKIPPED = "skip"


@dataclass(frozen=True)
class Check:
    """One thing that kubelet needs of a plugin.

    ``run`` returns what is worth telling of a success, raises `CheckFailed` or `CheckSkipped`. Where one of ``needs``
    did not pass in the same run, the check is skipped: it could only fail for the same reason. ``registered`` says
    whether the plugin must have registered before it starts.
    """

    id: str
    sentence: str
    run: "Callable[[Subject], Awaitable[str | None]]"
    needs: tuple[str, ...] = ()
    registered: bool = True

    @property
    def group(self) -> str:
        """What the check is about: the id up to its first dash."""
        return self.id.partition("-")[0]


@dataclass(frozen=True)
class CheckVerdict:
    """How one check ended. ``reason`` is one line: why it failed or was skipped, or what a success is worth telling."""

    check: Check
    outcome: CheckOutcome
    reason: str
    seconds: float


def one_line(text: str) -> str:
    """Somebody else's words, fit for a terminal, a table and XML: one line, printable, not endless."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return printable if len(printable) <= _MAX_DETAIL_CHARACTERS else f"{printable[: _MAX_DETAIL_CHARACTERS - 1]}…"


def some(names: "list[str] | tuple[str, ...] | set[str]", limit: int = 3) -> str:
    """A few of many names, and how many more there are."""
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more
