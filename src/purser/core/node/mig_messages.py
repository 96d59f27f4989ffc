"""Messages between the operator and a node's MIG worker, in annotations of the node."""

import msgspec

from purser.core.names import MIG_RESULT_ANNOTATION, MIG_WANTED_ANNOTATION
from purser.core.node.annotations import NodeMessage


class MigRequest(msgspec.Struct, frozen=True):
    """A layout that a node's MIG worker is to apply now."""

    profile: str
    attempt: str
    """Distinguishes this request from others for the same profile."""
    check_only: bool = False
    """Nothing is changed: the result says whether there is anything to change."""


class MigResult(msgspec.Struct, frozen=True):
    """What became of it."""

    profile: str
    attempt: str
    error: str = ""
    """In one sentence; empty: it is applied."""
    differs: bool = False
    """Of a request that only checks: the node's GPUs have another layout."""
    untouched: tuple[str, ...] = ()
    """Of a request that only checks: the uuids of GPUs that have the layout already, and of their MIG devices. Workers
    of older versions do not say."""


_REQUESTS = NodeMessage(MigRequest, MIG_WANTED_ANNOTATION)
_RESULTS = NodeMessage(MigResult, MIG_RESULT_ANNOTATION)


def decode_request(text: str | None) -> MigRequest | None:
    """The request of an annotation; None where there is none that can be read."""
    return _REQUESTS.read(text)


def decode_result(text: str | None) -> MigResult | None:
    """The result of an annotation; None where there is none that can be read."""
    return _RESULTS.read(text)
