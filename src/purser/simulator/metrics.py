"""What is measured after every event, and how it is summed up.

Columns are those of FGD's published tables: the value at X percent is the mean over all rows at which X percent of the
GPUs had arrived, rounded to whole percent; allocation is rounded to two digits in each row. On few GPUs one pod may
step over X percent: then it is the value just before.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from purser.core.fleet.arrays import FleetArrays
from purser.core.placement.fragments import Fragments
from purser.core.placement.mix import Mix

PERCENTS = (70, 80, 90, 95, 100, 110, 120, 130)
"""At which results are reported."""

Floats = npt.NDArray[np.float64]


class Rows:
    """One row per event, in arrays that are as long as they will be from the beginning.

    ``arrived`` and ``allocated`` are in thousandths of a GPU, ``fragments`` as well.
    """

    def __init__(self, arrived: npt.NDArray[np.int64], capacity_milli: int) -> None:
        self.arrived = arrived
        self.allocated = np.zeros(len(arrived), np.int64)
        self.fragments = np.zeros(len(arrived))
        self.capacity_milli = max(capacity_milli, 1)

    @property
    def arrived_percent(self) -> Floats:
        """Of all GPUs, for each row."""
        return 100 * self.arrived / self.capacity_milli

    @property
    def allocation_percent(self) -> Floats:
        """Of all GPUs, for each row."""
        return np.round(100 * self.allocated / self.capacity_milli, 2)

    @property
    def fragmentation_percent(self) -> Floats:
        """Of all GPUs, for each row."""
        return 100 * self.fragments / self.capacity_milli

    def columns(self, percents: Sequence[int], values: Floats) -> dict[int, float]:
        """The mean of the values at so many percent arrived; without those that never arrived."""
        rounded = np.rint(self.arrived_percent)
        reached = [percent for percent in percents if len(rounded) and percent <= rounded[-1]]
        return {percent: round(float(_at(percent, rounded, values).mean()), 4) for percent in reached}


def _at(percent: int, rounded: Floats, values: Floats) -> Floats:
    """The values of all rows with so many percent, or else that of the last row before, if there is one."""
    start, end = np.searchsorted(rounded, (percent, percent + 1))
    return values[start:end] if start < end else values[max(start - 1, 0) : max(start, 1)]


class FragmentCount:
    """The fleet's fragments, kept up row by row: a placement changes one."""

    def __init__(self, fleet: FleetArrays, mix: Mix) -> None:
        self._fragments, self._fleet = Fragments(mix), fleet
        self._of_rows = self._fragments.of_rows(fleet)
        self.total = float(self._of_rows.sum())

    def changed(self, row: int) -> None:
        """Something was taken or given back on this row, and on no other since the last call."""
        before = float(self._of_rows[row])
        self._of_rows = self._fragments.of_rows(self._fleet)
        self.total += float(self._of_rows[row]) - before
