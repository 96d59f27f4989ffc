from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import CHARACTERS

from purser.core.kubernetes.quantities import MAX_VALUE, QuantityError, parse_quantity, quantity_ceil, quantity_milli


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("2", 2),
        (2, 2),
        (0.5, Decimal("0.5")),
        ("+3", 3),
        ("-1.5", Decimal("-1.5")),
        (".5", Decimal("0.5")),
        ("5.", 5),
        ("500m", Decimal("0.5")),
        ("1n", Decimal("1e-9")),
        ("3u", Decimal("3e-6")),
        ("1k", 1000),
        ("1Ki", 1024),
        ("16Gi", 16 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-1", Decimal("1.2")),
        ("1e+2", 100),
        ("123456789012345678901234567890Ki", 123456789012345678901234567890 * 1024),
        ("0.1Ki", Decimal("102.4")),
    ],
)
def test_a_quantity_has_its_exact_value(text, value):
    assert parse_quantity(text) == value


WORDS = ["1Gib", "1K", "Gi", ".", "1e", "1e3Ki", "1mi", "--1", "0x10", "1_000", "²", "nan", "inf", "1e9999"]


@pytest.mark.parametrize("text", [*WORDS, "", " 1", "1 ", "1 Gi", float("nan"), True, "1" * 65])
def test_what_is_no_quantity_is_named_in_the_error(text):
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert str(text)[:60] in str(caught.value)


def test_rounding_goes_up_as_in_kubernetes():
    assert quantity_ceil("1500m") == 2
    assert quantity_ceil("-1500m") == -1
    assert quantity_ceil("0.1Ki") == 103
    assert quantity_milli("1") == 1000
    assert quantity_milli("1u") == 1
    assert quantity_milli("0.1") == 100


@given(
    digits=st.from_regex(r"[0-9]{1,20}(\.[0-9]{0,20})?", fullmatch=True, alphabet=CHARACTERS),
    suffix=st.sampled_from(["", "n", "m", "k", "G", "E", "Ki", "Gi", "Ei", "e-9", "E12"]),
)
def test_values_agree_with_fractions(digits, suffix):
    factors = {"": 0, "n": -9, "m": -3, "k": 3, "G": 9, "E": 18, "e-9": -9, "E12": 12}
    binary = {"Ki": 10, "Gi": 30, "Ei": 60}
    factor = Fraction(2) ** binary[suffix] if suffix in binary else Fraction(10) ** factors[suffix]
    exact = Fraction(digits if not digits.endswith(".") else digits + "0") * factor
    assert Fraction(parse_quantity(digits + suffix)) == exact
    assert quantity_ceil(digits + suffix) == min(-(-exact.numerator // exact.denominator), MAX_VALUE)
