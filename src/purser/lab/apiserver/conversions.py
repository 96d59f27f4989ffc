"""Conversions between the versions in which one stored object is served. Pure.

Events have two faces, core/v1 and events.k8s.io/v1; everything else differs in its version's name only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .errors import Obj

_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_ORIGINAL_NAMES = {new: old for old, new in _RENAMED.items()}


def event_from_core(event: Obj) -> Obj:
    """core/v1 -> events.k8s.io/v1."""
    return {**{_RENAMED.get(key, key): value for key, value in event.items()}, "apiVersion": "events.k8s.io/v1"}


def event_to_core(event: Obj) -> Obj:
    """events.k8s.io/v1 -> core/v1."""
    return {**{_ORIGINAL_NAMES.get(key, key): value for key, value in event.items()}, "apiVersion": "v1"}


@dataclass(frozen=True, slots=True)
class Conversion:
    """To and from the stored version."""

    to_stored: Callable[[Obj], Obj]
    from_stored: Callable[[Obj], Obj]


EVENTS = Conversion(event_to_core, event_from_core)


def renamed(api_version: str, stored: str) -> Conversion:
    """Versions of equal shape."""
    return Conversion(
        lambda obj: {**obj, "apiVersion": stored},
        lambda obj: {**obj, "apiVersion": api_version},
    )


BUILTIN = {
    "events.k8s.io/v1": EVENTS,
    "policy/v1beta1": renamed("policy/v1beta1", "policy/v1"),
}
"""Served versions of built-in resources that are not the stored ones."""
