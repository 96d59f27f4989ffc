"""The confusion matrix: what was predicted against what kubelet did."""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

import pytest


class Predicted(StrEnum):
    """What the scheduler said of a node."""

    FITS = "fits"
    REFUSED = "kubelet refuses"
    NO_ROOM = "no room"
    BUSY = "pods on their way"


class Enforced(StrEnum):
    """What kubelet did; of a pod that was not to fit, what it would have done with the best of all grants."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    UNTRIED = "not tried"


PREFIX = "prediction: "
"""Of the properties of a test's report, one for each cell."""


def properties(cells: Mapping[tuple[Predicted, Enforced], int]) -> Iterable[tuple[str, int]]:
    """The cells as properties of a test's report: that is how they come out of xdist's workers."""
    return ((f"{PREFIX}{predicted}/{enforced}", count) for (predicted, enforced), count in sorted(cells.items()))


def collected(found: Iterable[tuple[str, object]]) -> Counter[str]:
    """The cells of all tests, by ``predicted/enforced``."""
    cells: Counter[str] = Counter()
    for name, count in found:
        if name.startswith(PREFIX) and isinstance(count, int):
            cells[name.removeprefix(PREFIX)] += count
    return cells


def summary(reports: Iterable[pytest.TestReport]) -> list[str]:
    """The lines about all predictions that were made; none when none were."""
    cells = collected(entry for report in reports for entry in report.user_properties)
    return table(cells) if cells else []


def table(cells: Mapping[str, int]) -> list[str]:
    """For people. False accepts are among what was predicted to fit, false refusals among what kubelet was predicted
    to refuse and of which all grants were tried."""
    rows = [f"predicted \\ enforced {''.join(f'{column:>12}' for column in Enforced)}"]
    for row in Predicted:
        rows.append(f"{row:<20} {''.join(f'{_spaced(_cell(cells, row, column)):>12}' for column in Enforced)}")
    return [
        f"predictions of kubelet's admission: {_spaced(sum(cells.values()))}",
        *rows,
        f"false accepts: {_rate(_cell(cells, Predicted.FITS, Enforced.REFUSED), _row(cells, Predicted.FITS))}, "
        f"false refusals: {_rate(_cell(cells, Predicted.REFUSED, Enforced.ADMITTED), _row(cells, Predicted.REFUSED))}",
    ]


def _cell(cells: Mapping[str, int], row: Predicted, column: Enforced) -> int:
    return cells.get(f"{row}/{column}", 0)


def _row(cells: Mapping[str, int], row: Predicted) -> int:
    return _cell(cells, row, Enforced.ADMITTED) + _cell(cells, row, Enforced.REFUSED)


def _rate(wrong: int, tried: int) -> str:
    return f"{_spaced(wrong)} of {_spaced(tried)}" + (f" ({100 * wrong / tried:.4f}%)" if tried else "")


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")
