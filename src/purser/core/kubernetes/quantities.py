"""Kubernetes quantities (``1500m``, ``16Gi``, ``1e3``), exactly.

Grammar and rounding are those of `k8s.io/apimachinery/pkg/api/resource`: decimal suffixes n u m k M G T P E, binary
Ki Mi Gi Ti Pi Ei, or a decimal exponent. Nothing passes through a float unless it came as one.
"""

import re
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

QuantityLike = str | int | float
"""As quantities stand in objects."""

MIB = 1 << 20
"""Bytes."""

_SYNTAX = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?")
_MAX_LENGTH = 64
_MAX_CACHED = 4096
"""Amounts that are remembered: all pods of a cluster have few different ones between them."""

MAX_VALUE = (1 << 63) - 1
"""What larger amounts, and larger thousandths, count as."""

_EXACT_CONTEXT = Context(prec=1200)  # 64 digits times 10 to the 999th; beyond what the syntax lets through
_MILLI = Decimal(1000)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FACTORS: dict[str, Decimal] = {suffix: Decimal(10) ** exponent for suffix, exponent in _DECIMAL.items()} | {
    f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", start=1)
}


class QuantityError(ValueError):
    """A value that is not a quantity; the message holds it."""


def parse_quantity(value: QuantityLike) -> Decimal:
    """The exact value of a quantity, in its base unit (bytes, cores, devices). Raises `QuantityError`."""
    text = str(value)
    match = _SYNTAX.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        shown = text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "..."
        raise QuantityError(
            f"{shown!r} is not a quantity: must be a number with an optional suffix, such as 2, 500m or 16Gi"
        )
    number, suffix = match.group(1), match.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return _EXACT_CONTEXT.scaleb(Decimal(number), int(suffix[1:]))
    return _EXACT_CONTEXT.multiply(Decimal(number), _FACTORS[suffix])


def quantity_ceil(value: QuantityLike) -> int:
    """The value rounded up to a whole number, as Kubernetes does. Raises `QuantityError`."""
    return _whole(str(value))


def quantity_milli(value: QuantityLike) -> int:
    """The value in thousandths (millicores), rounded up, as Kubernetes does. Raises `QuantityError`."""
    return _to_milli(str(value))


@lru_cache(maxsize=_MAX_CACHED)
def _whole(text: str) -> int:
    return _ceil(parse_quantity(text))


@lru_cache(maxsize=_MAX_CACHED)
def _to_milli(text: str) -> int:
    return _ceil(_EXACT_CONTEXT.multiply(parse_quantity(text), _MILLI))


def quantity_mib(value: QuantityLike) -> int:
    """Bytes as whole MiB: a part of a byte counts as a byte, and a part of a MiB as nothing. Raises `QuantityError`."""
    return quantity_ceil(value) >> 20


def _ceil(value: Decimal) -> int:
    """As Kubernetes has it, nothing is larger than 2^63-1."""
    return max(-MAX_VALUE, min(int(value.to_integral_value(rounding=ROUND_CEILING, context=_EXACT_CONTEXT)), MAX_VALUE))
