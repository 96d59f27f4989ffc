"""The canonical form of resource quantities, in which only an API server writes them.

Values are parsed by `purser.core.kubernetes.quantities`. The limit on exponents and the message are the API server's.
Source of the rules: k8s.io/apimachinery/pkg/api/resource (Quantity documentation comment).
"""

import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal

from purser.core.kubernetes import quantities

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_MAX_EXPONENT = 18
_NANO = Decimal("1e-9")
_EXACT = Context(prec=400)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class InvalidQuantityError(ValueError):
    """The text is not a quantity; the message is the API server's."""


def parse(value: object) -> Decimal:
    """The exact value; raises `InvalidQuantityError`."""
    return _parse(value)[0]


def _parse(value: object) -> tuple[Decimal, str]:
    text = "" if isinstance(value, bool) else str(value)
    try:
        number = quantities.parse_quantity(text)
    except quantities.QuantityError as error:
        raise InvalidQuantityError(MESSAGE) from error
    exponent = _EXPONENT.search(text)
    if exponent is None:
        return number, "binary" if text.endswith("i") else "decimal"
    if abs(int(exponent[1])) > _MAX_EXPONENT:
        raise InvalidQuantityError(MESSAGE)
    return number, "exponent"


def canonical(value: object) -> str:
    """The form in which the API server writes it: `0.5` -> `500m`, `1024Mi` -> `1Gi`, `1500m` stays."""
    return _format(*_parse(value))


def added(left: object, right: object) -> str:
    """The sum, in the form of the first of the two that is not zero, as `Quantity.Add` has it."""
    (number, form), (other, other_form) = _parse(left), _parse(right)
    return _format(_EXACT.add(number, other), form if number else other_form)


def subtracted(left: object, right: object) -> str:
    """The difference, in the form of the first of the two that is not zero, as `Quantity.Sub` has it."""
    (number, form), (other, other_form) = _parse(left), _parse(right)
    return _format(_EXACT.subtract(number, other), form if number else other_form)


def _format(number: Decimal, form: str) -> str:
    number = number.quantize(_NANO, rounding=ROUND_CEILING, context=_EXACT)
    if form == "binary" and abs(number) >= 1024 and number == number.to_integral_value():
        return _scale(number, 1024, _BINARY)
    if form == "exponent":
        return _exponent(number)
    return _decimal(number)


def _scale(number: Decimal, base: int, suffixes: Sequence[str]) -> str:
    whole, power = int(number), 0
    while whole and whole % base == 0 and power + 1 < len(suffixes):
        whole, power = whole // base, power + 1
    return f"{whole}{suffixes[power]}"


def _decimal(number: Decimal) -> str:
    return _scale(number.scaleb(9, _EXACT), 1000, _DECIMAL) if number else "0"


def _exponent(number: Decimal) -> str:
    text = _scale(number.scaleb(9, _EXACT), 1000, [f"e{power * 3}" for power in range(-3, 7)]) if number else "0"
    return text.removesuffix("e0")
