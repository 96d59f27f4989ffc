"""What is wrong with a LimitRange: the validation of the real server (ValidateLimitRange). Pure."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from . import amounts, quantity
from .errors import Cause, Obj
from .names import QUALIFIED, duplicate, forbidden, invalid, is_qualified, required
from .quotachecks import OTHER_QUOTA_RESOURCES

_CLAIM = "PersistentVolumeClaim"
_TYPES = ("Pod", "Container", _CLAIM)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_STANDARD = (*_COMPUTE, *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _COMPUTE), "storage", "pods")
_DEFAULTS = {"default", "defaultRequest"}
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")

_ORDERED = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)
"""Two lists of which the first may not have more of a resource, the list that is named, and why."""


def check(limit_range: Obj) -> Iterator[Cause]:
    """What is wrong with a LimitRange."""
    seen: set[str] = set()
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        where, kind = f"spec.limits[{index}]", item.get("type", "")
        yield from _check_type(kind, f"{where}.type")
        if kind in seen:
            yield duplicate(f"{where}.type", kind)
        seen.add(kind)
        yield from _check_item(item, kind, where)


def _check_type(kind: str, where: str) -> Iterator[Cause]:
    if not is_qualified(kind):
        yield invalid(where, kind, QUALIFIED)
    elif "/" not in kind and kind not in _TYPES:
        yield invalid(where, kind, "must be a standard limit type or fully qualified")


def _check_item(item: Obj, kind: str, where: str) -> Iterator[Cause]:
    lists: dict[str, Mapping[str, str]] = {key: item.get(key) or {} for key in _LISTS}
    if kind == "Pod":
        for key in sorted(_DEFAULTS):
            if lists.pop(key):
                yield forbidden(f"{where}.{key}", "may not be specified when `type` is 'Pod'")
    for key, listed in lists.items():
        for name in listed:
            yield from _check_name(name, kind, f"{where}.{key}[{name}]")
    if kind == _CLAIM and not any("storage" in lists[key] for key in ("min", "max")):
        why = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{where}.limits", why)
    for name in sorted({name for listed in lists.values() for name in listed}):
        there = {key: listed[name] for key, listed in lists.items() if name in listed}
        yield from _check_amounts(name, there, where)


def _check_name(name: str, kind: str, where: str) -> Iterator[Cause]:
    if not is_qualified(name):
        yield invalid(where, name, QUALIFIED)
        return
    standard = "/" in name or name in _STANDARD or name in OTHER_QUOTA_RESOURCES or amounts.is_huge_pages(name)
    if not standard:
        yield invalid(where, name, "must be a standard resource type or fully qualified")
    if kind not in ("Pod", "Container"):
        return
    if "/" not in name and name not in _COMPUTE and not amounts.is_huge_pages(name):
        yield invalid(where, name, "must be a standard resource for containers")
    elif "/" in name and "kubernetes.io/" not in name and not amounts.is_extended(name):
        yield invalid(where, name, "doesn't follow extended resource name standard")


def _check_amounts(name: str, there: Mapping[str, str], where: str) -> Iterator[Cause]:
    values = {key: quantity.parse(amount) for key, amount in there.items()}
    for low, high, key, why in _ORDERED:
        if low in values and high in values and values[low] > values[high]:
            yield invalid(f"{where}.{key}[{name}]", there[key], why.format(there[low], there[high]))
    if "maxLimitRequestRatio" in values:
        yield from _check_ratio(values, there["maxLimitRequestRatio"], f"{where}.maxLimitRequestRatio[{name}]")
    no_overcommit = amounts.is_huge_pages(name) or ("/" in name and "kubernetes.io/" not in name)
    if no_overcommit and values.keys() >= _DEFAULTS and values["default"] != values["defaultRequest"]:
        why = f"default value {there['default']} must equal to defaultRequest value {there['defaultRequest']} in {name}"
        yield invalid(f"{where}.defaultRequest[{name}]", there["defaultRequest"], why)


def _check_ratio(values: Mapping[str, Decimal], text: str, where: str) -> Iterator[Cause]:
    ratio = values["maxLimitRequestRatio"]
    if ratio < 1:
        yield invalid(where, text, f"ratio {text} is less than 1")
    if values.get("min") and "max" in values and ratio > values["max"] / values["min"]:
        yield invalid(where, text, f"ratio {text} is greater than max/min = {values['max'] / values['min']:.6f}")
