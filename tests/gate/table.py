"""The end of a run: one table, then what failed, by name and with its last lines."""

from collections.abc import Mapping, Sequence

from .runner import LaneResult

MOST_FLAKY = 3
"""More tests than these that pass only alone fail the gate: they hide what else is wrong."""


def passes(results: Sequence[LaneResult]) -> bool:
    """Whether every lane passed, and few tests needed a second try."""
    return not any(result.failures for result in results) and _flaky(results) <= MOST_FLAKY


def table(results: Sequence[LaneResult], seconds_before: Mapping[str, float]) -> list[str]:
    """What is printed last, a line each. ``seconds_before`` are those of the run before, by lane."""
    lines = [_ROW.format("lane", "result", "passed", "failed", "flaky", "skipped", "seconds", "before")]
    for result in results:
        before = seconds_before.get(result.name)
        lines.append(
            _ROW.format(
                result.name,
                "FAILED" if result.failures else "passed",
                result.passed,
                len(result.failures),
                len(result.flaky),
                result.skipped,
                f"{result.seconds:.0f}",
                "" if before is None else f"{before:.0f}",
            )
        )
    for result in results:
        for failure in result.failures:
            lines += ["", f"FAILED in {result.name}: {failure.name}", *(f"    {line}" for line in failure.last_lines())]
        for failure in result.flaky:
            lines += ["", f"flaky in {result.name}, it passed alone: {failure.name}"]
            lines += [f"    {line}" for line in failure.last_lines()]
    if _flaky(results) > MOST_FLAKY:
        lines += ["", f"FAILED: {_flaky(results)} tests passed only when they ran alone; at most {MOST_FLAKY} may."]
    passed, failed, skipped = (
        sum(result.passed for result in results),
        sum(len(result.failures) for result in results),
        sum(result.skipped for result in results),
    )
    return [*lines, "", f"{passed} passed, {failed} failed, {skipped} skipped"]


_ROW = "{:<10}{:<8}{:>8}{:>8}{:>8}{:>9}{:>9}{:>8}"


def _flaky(results: Sequence[LaneResult]) -> int:
    return sum(len(result.flaky) for result in results)
