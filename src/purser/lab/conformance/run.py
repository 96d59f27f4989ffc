"""Runs checks one after the other and collects what they found."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from purser.lab.conformance.check import Check, CheckFailed, CheckOutcome, CheckSkipped, CheckVerdict, one_line
from purser.lab.conformance.settings import Settings
from purser.lab.conformance.subject import Subject

_WORDS = {CheckOutcome.PASSED: "passed", CheckOutcome.FAILED: "failed", CheckOutcome.SKIPPED: "skipped"}


@dataclass(frozen=True)
class Report:
    """What was tested, and every verdict in the order of the checks."""

    resource: str | None
    others: tuple[str, ...]
    """Resources that the plugin registered and that were not tested."""
    verdicts: tuple[CheckVerdict, ...]
    seconds: float

    def count(self, outcome: CheckOutcome) -> int:
        """How many checks ended so."""
        return Counter(verdict.outcome for verdict in self.verdicts)[outcome]

    @property
    def summary(self) -> str:
        """One line: ``38 passed, 1 failed, 3 skipped``."""
        return ", ".join(f"{self.count(outcome)} {word}" for outcome, word in _WORDS.items())


async def run(
    settings: Settings, checks: Sequence[Check], on_check: Callable[[Check], None] = lambda _: None
) -> Report:
    """Run the checks; ``on_check`` is called before each. Raises `CannotRun` when the plugin cannot be reached at
    all."""
    started = time.monotonic()
    verdicts: dict[str, CheckVerdict] = {}
    async with Subject(settings) as subject:
        for check in checks:
            on_check(check)
            verdicts[check.id] = await _verdict(check, subject, verdicts)
        resource = one_line(subject.resource) if subject.resource is not None else None
        return Report(resource, subject.others, tuple(verdicts.values()), time.monotonic() - started)


async def _verdict(check: Check, subject: Subject, before: Mapping[str, CheckVerdict]) -> CheckVerdict:
    started = time.monotonic()
    outcome, reason = await _outcome(check, subject, before)
    ended = await subject.record_ending(check.id)
    if ended is not None and outcome is not CheckOutcome.SKIPPED:
        outcome, reason = CheckOutcome.FAILED, f"the plugin exited unexpectedly during this check: {ended}"
    return CheckVerdict(check, outcome, one_line(reason), time.monotonic() - started)


async def _outcome(check: Check, subject: Subject, before: Mapping[str, CheckVerdict]) -> tuple[CheckOutcome, str]:
    for need in check.needs:
        found = before.get(need)
        if found is not None and found.outcome is not CheckOutcome.PASSED:
            return CheckOutcome.SKIPPED, _skip_reason(need, found)
    lost = await subject.ensure_ready() if check.registered else None
    if lost is not None:
        return CheckOutcome.SKIPPED, lost
    try:
        return CheckOutcome.PASSED, await check.run(subject) or ""
    except CheckSkipped as error:
        return CheckOutcome.SKIPPED, str(error)
    except (CheckFailed, OSError) as error:
        return CheckOutcome.FAILED, str(error)


def _skip_reason(need: str, found: CheckVerdict) -> str:
    if found.outcome is CheckOutcome.SKIPPED and not found.reason.startswith("needs "):
        return found.reason
    word = "failed" if found.outcome is CheckOutcome.FAILED else "was skipped"
    return f"needs {need}, which {word}"
