"""AdmissionReview v1: what the API server asks a webhook, and how it is answered."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.scheduler.bodies import WEBHOOK_BODIES

API_VERSION = "admission.k8s.io/v1"
_EMPTY = (b"", b"null")

Operation = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""


class ReviewError(ValueError):
    """A request that is no admission review, or holds an object that cannot be read; the message says where."""


class GroupVersionResource(msgspec.Struct, frozen=True):
    """Which collection the object belongs to."""

    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(msgspec.Struct, frozen=True):
    """Who sent the request to the API server."""

    username: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None
    """What else its credentials say, such as which pod a token is for."""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """What is to be admitted."""

    uid: str
    operation: str = ""
    namespace: str = ""
    name: str = ""
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw(b"")
    old_object: msgspec.Raw = msgspec.Raw(b"")

    @property
    def has_object(self) -> bool:
        """Whether the new state is there."""
        return bytes(self.object) not in _EMPTY

    @property
    def has_old_object(self) -> bool:
        """Whether the state before is there."""
        return bytes(self.old_object) not in _EMPTY


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class Why(StrEnum):
    """Why a webhook decided as it did: the ``reason`` label of its metric."""

    NOT_A_POD = "not-a-pod"
    MIRROR_POD = "mirror-pod"
    NO_GPU = "no-gpu"
    OTHER_SCHEDULER = "other-scheduler"
    ADMITTED = "admitted"
    BAD_REQUEST = "bad-request"
    PRIVILEGED_SHARE = "privileged-share"
    NODE_PRESET = "node-preset"
    FORGED_GRANT = "forged-grant"
    FORGED_RECORD = "forged-record"
    CHANGED_GRANT = "changed-grant"
    NOT_MUTATED = "not-mutated"
    WEBHOOK_IGNORED = "webhook-ignored"
    NOT_ITS_NODE = "not-its-node"
    DEVICES_UNASKED = "devices-unasked"
    WIDENED_SHARE = "widened-share"
    NO_ROOM_FOR_GRANT = "no-room-for-grant"


class Decision(msgspec.Struct, frozen=True):
    """What becomes of the object."""

    allowed: bool
    why: Why
    message: str = ""
    """Why not, for the author of the object."""
    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """``denied``, ``patched`` or ``allowed``."""
        if not self.allowed:
            return "denied"
        return "patched" if self.patch else "allowed"


_reviews = JsonReader(_Review, "the AdmissionReview", max_bytes=WEBHOOK_BODIES.each)
_objects: JsonReader[Any] = JsonReader(Any, "the object in the AdmissionReview", max_bytes=WEBHOOK_BODIES.each)


def decode_review(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview. Raises `ReviewError`."""
    try:
        review = _reviews.read(body)
    except UnreadableError as error:
        raise ReviewError(f"the body is no AdmissionReview: {error}") from error
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        raise ReviewError(
            brief(f"the body is a {review.kind!r} of {review.api_version!r}, not an AdmissionReview of {API_VERSION}")
        )
    if review.request is None:
        raise ReviewError("the AdmissionReview has no request")
    return review.request


def whole_object(data: msgspec.Raw) -> Any:
    """The object of a request as plain values. Raises `ReviewError`."""
    try:
        return _objects.read(data)
    except UnreadableError as error:
        raise ReviewError(str(error)) from error


def encode_review(request: AdmissionRequest, decision: Decision) -> bytes:
    """The AdmissionReview that answers a request."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": decision.allowed}
    if not decision.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": decision.message}
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = msgspec.json.encode(decision.patch)  # bytes: encoded as base64, as the API has it
    if decision.warnings:
        response["warnings"] = decision.warnings
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
