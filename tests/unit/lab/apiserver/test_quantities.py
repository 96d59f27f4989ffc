"""Quantities in their canonical form."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.lab.apiserver.quantity import InvalidQuantityError, canonical, parse

# Written down from a real API server's answers and the rules in apimachinery's Quantity.
CANONICAL = {
    "0": "0", "1": "1", "0.5": "500m", "1500m": "1500m", "2000m": "2", "100n": "100n", "0.1": "100m", "1000": "1k",
    "1024": "1024", "1k": "1k", "1000k": "1M", "1Ki": "1Ki", "1024Ki": "1Mi", "1.5Gi": "1536Mi", "0.5Ki": "512",
    "1024Mi": "1Gi", "1000Mi": "1000Mi", "1e3": "1e3", "1E3": "1e3", "1e6": "1e6", "12e6": "12e6", "-1": "-1",
    "+5": "5", ".5": "500m", "5.": "5", "64Gi": "64Gi", "80000000000": "80G", "0Ki": "0",
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CANONICAL.items())
def test_canonical_form(text: str, expected: str) -> None:
    assert canonical(text) == expected


def test_numbers_are_quantities() -> None:
    assert (canonical(1), canonical(0.25), parse(2)) == ("1", "250m", Decimal(2))


@given(st.integers(0, 10**15), st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Mi", "Gi", "e3"]))
def test_the_canonical_form_keeps_the_value_and_is_its_own(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert parse(canonical(text)) == parse(text)
    assert canonical(canonical(text)) == canonical(text)


@pytest.mark.parametrize("text", ["", "many", "1 Gi", "1gi", "1.2.3", "Gi", "1KiB", "--1", True, None, "1e", "0x10"])
def test_everything_else_is_refused(text: object) -> None:
    with pytest.raises(InvalidQuantityError, match="quantities must match the regular expression"):
        parse(text)
