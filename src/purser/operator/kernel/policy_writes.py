"""What is written to a ClusterPolicy itself: its status, and the operator's finalizer."""

from collections.abc import Iterator

import msgspec

from purser.operator.kernel.active_policy import finalizers_of, name_of, old_status
from purser.operator.model import Raw, SetFinalizer, WriteStatus
from purser.operator.names import FINALIZER
from purser.operator.policy import ClusterPolicyStatus


def write_status(raw: Raw, status: ClusterPolicyStatus) -> Iterator[WriteStatus]:
    """Only if it differs from what is there."""
    if not raw.get("status") or status != old_status(raw):
        yield WriteStatus(name_of(raw), status)


def claim(raw: Raw, namespace: str) -> WriteStatus:
    """The policy is this operator's: of two that meet a new one at once, in two namespaces, one gets a conflict."""
    return WriteStatus(name_of(raw), msgspec.structs.replace(old_status(raw), namespace=namespace), _version(raw))


def with_finalizer(raw: Raw) -> SetFinalizer:
    """The active policy does not go before the operator has cleaned up."""
    return SetFinalizer(name_of(raw), _version(raw), (*finalizers_of(raw), FINALIZER))


def without_finalizer(raw: Raw) -> SetFinalizer:
    """The operator needs this policy no longer."""
    rest = tuple(each for each in finalizers_of(raw) if each != FINALIZER)
    return SetFinalizer(name_of(raw), _version(raw), rest)


def _version(raw: Raw) -> str:
    return str(raw["metadata"].get("resourceVersion", ""))
