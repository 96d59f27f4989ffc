"""Resource quantities: parse, compare, and write in the one canonical form the API server answers with.

Source of the rules: k8s.io/apimachinery/pkg/api/resource (Quantity documentation comment).
"""

import re
from decimal import ROUND_CEILING, Context, Decimal

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_MAX_EXPONENT = 18
_MAX_LENGTH = 64
_NANO = Decimal("1e-9")
_EXACT = Context(prec=400)
_SHAPE = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$")
MESSAGE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """The text is no quantity; the message is the API server's."""


def parse(value: object) -> Decimal:
    """The exact value; raises `QuantityError`."""
    return _parse(value)[0]


def _parse(value: object) -> tuple[Decimal, str]:
    text = "" if isinstance(value, bool) else str(value)
    found = _SHAPE.match(text) if len(text) <= _MAX_LENGTH else None
    if not found:
        raise QuantityError(MESSAGE)
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        return _EXACT.multiply(number, Decimal(1024) ** _BINARY[suffix]), "binary"
    if suffix in _DECIMAL:
        return number.scaleb(3 * _DECIMAL[suffix], _EXACT), "decimal"
    if abs(int(suffix[1:])) > _MAX_EXPONENT:
        raise QuantityError(MESSAGE)
    return number.scaleb(int(suffix[1:]), _EXACT), "exponent"


def canonical(value: object) -> str:
    """The form in which the API server writes it: `0.5` -> `500m`, `1024Mi` -> `1Gi`, `1500m` stays."""
    number, form = _parse(value)
    number = number.quantize(_NANO, rounding=ROUND_CEILING, context=_EXACT)
    if form == "binary" and abs(number) >= 1024 and number == number.to_integral_value():
        return _scaled(number, 1024, ["", *_BINARY])
    if form == "exponent":
        return _exponent(number)
    return _decimal(number)


def _scaled(number: Decimal, base: int, suffixes: list[str]) -> str:
    whole, power = int(number), 0
    while whole and whole % base == 0 and power + 1 < len(suffixes):
        whole, power = whole // base, power + 1
    return f"{whole}{suffixes[power]}"


def _decimal(number: Decimal) -> str:
    return _scaled(number.scaleb(9, _EXACT), 1000, list(_DECIMAL)) if number else "0"


def _exponent(number: Decimal) -> str:
    text = _scaled(number.scaleb(9, _EXACT), 1000, [f"e{power * 3}" for power in range(-3, 7)]) if number else "0"
    return text.removesuffix("e0")
