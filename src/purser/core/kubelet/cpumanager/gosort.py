"""Sorting as Go's library did in 1.19 (pattern-defeating quicksort), step by step.

With a consistent comparison the steps do not matter. kubelets up to 1.21 sort by comparisons in which each of two
elements may come before the other: there the steps are the result. The vectors were observed on 1.20.2 compiled with
that Go; the released binary has an older one and may differ where there are more than six elements.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")

_MAX_INSERTION_SORT = 12
"""Elements up to which insertion sort is used."""
_MIN_MEDIAN_OF_NINE = 50
"""Elements from which the pivot is a median of nine, and nearly sorted input is repaired."""
_MAX_REPAIRS = 5
"""How many neighbours in the wrong order are mended."""


class _Pattern(Enum):
    UNKNOWN = 0
    ASCENDING = 1
    DESCENDING = 2


_PATTERN_BY_SWAPS = {0: _Pattern.ASCENDING, 12: _Pattern.DESCENDING}


def go_sorted(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """The items in the order in which Go's sort.Slice leaves them."""
    sorter = _Sorter(list(items), less)
    sorter.sort(0, len(sorter.values), len(sorter.values).bit_length())
    return sorter.values


class _Sorter(Generic[T]):
    """Sorts in place. Ranges are from ``low`` up to but without ``high``."""

    def __init__(self, values: list[T], less: Callable[[T, T], bool]) -> None:
        self.values = values
        self._compare = less

    def sort(self, low: int, high: int, bad_pivots: int) -> None:
        """Sort a range; ``bad_pivots``: how many bad pivots are borne before heap sort takes over."""
        was_balanced = was_partitioned = True
        while high - low > _MAX_INSERTION_SORT:
            if bad_pivots == 0:
                self._heap_sort(low, high)
                return
            if not was_balanced:
                self._break_pattern(low, high)
                bad_pivots -= 1
            pivot, pattern = self._choose_pivot(low, high)
            if pattern is _Pattern.DESCENDING:
                self.values[low:high] = self.values[low:high][::-1]
                pivot, pattern = high - 1 - (pivot - low), _Pattern.ASCENDING
            looks_sorted = was_balanced and was_partitioned and pattern is _Pattern.ASCENDING
            if looks_sorted and self._partial_insertion_sort(low, high):
                return
            if low > 0 and not self._less(low - 1, pivot):
                low = self._partition_equal(low, high, pivot)
                continue
            threshold = (high - low) // 8
            middle, was_partitioned = self._partition(low, high, pivot)
            was_balanced = min(middle - low, high - middle) >= threshold
            if middle - low < high - middle:
                self.sort(low, middle, bad_pivots)
                low = middle + 1
            else:
                self.sort(middle + 1, high, bad_pivots)
                high = middle
        self._insertion_sort(low, high)

    def _less(self, one: int, other: int) -> bool:
        return self._compare(self.values[one], self.values[other])

    def _swap(self, one: int, other: int) -> None:
        self.values[one], self.values[other] = self.values[other], self.values[one]

    def _insertion_sort(self, low: int, high: int) -> None:
        for end in range(low + 1, high):
            self._shift_down(end, low)

    def _shift_down(self, place: int, low: int) -> None:
        while place > low and self._less(place, place - 1):
            self._swap(place, place - 1)
            place -= 1

    def _partial_insertion_sort(self, low: int, high: int) -> bool:
        """Whether the range is sorted, after a few neighbours were put right if it is long."""
        place = low + 1
        for _ in range(_MAX_REPAIRS):
            while place < high and not self._less(place, place - 1):
                place += 1
            if place == high:
                return True
            if high - low < _MIN_MEDIAN_OF_NINE:
                return False
            self._swap(place, place - 1)
            if place - low >= 2:
                self._shift_down(place - 1, 0)
            self._shift_up(place, high)
        return False

    def _shift_up(self, place: int, high: int) -> None:
        for later in range(place + 1, high):
            if not self._less(later, later - 1):
                return
            self._swap(later, later - 1)

    def _choose_pivot(self, low: int, high: int) -> tuple[int, _Pattern]:
        quarter = (high - low) // 4
        places = [low + quarter, low + 2 * quarter, low + 3 * quarter]
        swaps = 0
        if high - low >= _MIN_MEDIAN_OF_NINE:
            for index, place in enumerate(places):
                places[index], more = self._median(place - 1, place, place + 1)
                swaps += more
        pivot, more = self._median(*places)
        return pivot, _PATTERN_BY_SWAPS.get(swaps + more, _Pattern.UNKNOWN)

    def _median(self, one: int, two: int, three: int) -> tuple[int, int]:
        """The place of the median of three, and how many pairs were in the wrong order."""
        swaps = 0
        if self._less(two, one):
            one, two, swaps = two, one, swaps + 1
        if self._less(three, two):
            two, three, swaps = three, two, swaps + 1
        if self._less(two, one):
            one, two, swaps = two, one, swaps + 1
        return two, swaps

    def _partition(self, low: int, high: int, pivot: int) -> tuple[int, bool]:
        """Where the pivot ends up between the smaller and the other values, and whether they were apart already."""
        self._swap(low, pivot)
        left, right = self._next_pair(low + 1, high - 1, low)
        was_partitioned = left > right
        while left <= right:
            self._swap(left, right)
            left, right = self._next_pair(left + 1, right - 1, low)
        self._swap(right, low)
        return right, was_partitioned

    def _next_pair(self, left: int, right: int, pivot: int) -> tuple[int, int]:
        while left <= right and self._less(left, pivot):
            left += 1
        while left <= right and not self._less(right, pivot):
            right -= 1
        return left, right

    def _partition_equal(self, low: int, high: int, pivot: int) -> int:
        """Where the values begin that are greater than the pivot, when none is smaller."""
        self._swap(low, pivot)
        left, right = low + 1, high - 1
        while True:
            while left <= right and not self._less(low, left):
                left += 1
            while left <= right and self._less(low, right):
                right -= 1
            if left > right:
                return left
            self._swap(left, right)
            left, right = left + 1, right - 1

    def _break_pattern(self, low: int, high: int) -> None:
        """Swap three values of the middle with others, chosen by a generator that starts at the length."""
        length = number = high - low
        for place in range(low + length // 4 * 2 - 1, low + length // 4 * 2 + 2):
            number = _next_number(number)
            other = number & ((1 << length.bit_length()) - 1)
            self._swap(place, low + (other - length if other >= length else other))

    def _heap_sort(self, low: int, high: int) -> None:
        size = high - low
        for root in range((size - 1) // 2, -1, -1):
            self._sift_down(root, size, low)
        for last in range(size - 1, -1, -1):
            self._swap(low, low + last)
            self._sift_down(0, last, low)

    def _sift_down(self, root: int, size: int, low: int) -> None:
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self._less(low + child, low + child + 1):
                child += 1
            if not self._less(low + root, low + child):
                return
            self._swap(low + root, low + child)
            root = child


def _next_number(number: int) -> int:
    """xorshift with Marsaglia's shifts for 32 bits, in 64 (as Go has it up to 1.20)."""
    for shift in (13, -17, 5):
        number ^= (number << shift if shift > 0 else number >> -shift) & ((1 << 64) - 1)
    return number
