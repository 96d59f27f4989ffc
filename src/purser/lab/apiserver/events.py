"""Events have two faces, core/v1 and events.k8s.io/v1, and one store. Pure conversions between them."""

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
_BACK = {new: old for old, new in _RENAMED.items()}


def from_core(event: Obj) -> Obj:
    """core/v1 -> events.k8s.io/v1."""
    return {**{_RENAMED.get(key, key): value for key, value in event.items()}, "apiVersion": "events.k8s.io/v1"}


def to_core(event: Obj) -> Obj:
    """events.k8s.io/v1 -> core/v1."""
    return {**{_BACK.get(key, key): value for key, value in event.items()}, "apiVersion": "v1"}
