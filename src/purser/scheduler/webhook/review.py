"""AdmissionReview v1: what the API server asks a webhook, and how it is answered."""

from collections.abc import Mapping
from typing import Any

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief
from purser.core.kubernetes.reasons import ExplainedReason
from purser.scheduler.bodies import WEBHOOK_BODIES

API_VERSION = "admission.k8s.io/v1"
_EMPTY = (b"", b"null")

Operation = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""


class ReviewError(ValueError):
    """A request that is not an admission review, or holds an object that cannot be read; the message says where."""


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


class DecisionReason(ExplainedReason):
    """Why a webhook decided as it did: the ``reason`` label of its metric, and of its log lines."""

    @property
    def denies(self) -> bool:
        """Whether the webhook turns objects away for it."""
        return self not in _ADMITTED_REASONS

    NOT_A_POD = "not-a-pod", "other object", "The webhook does not decide on objects of this kind."
    MIRROR_POD = (
        "mirror-pod",
        "Pod",
        "The pod is the mirror pod of a static pod, which kubelet runs in any case.",
    )
    NO_GPU = "no-gpu", "Pod", "The pod does not request a GPU."
    OTHER_SCHEDULER = (
        "other-scheduler",
        "Pod",
        "The pod names another scheduler, so Purser leaves it to that scheduler.",
        "If Purser should place the pod, remove schedulerName or make Purser adopt that name.",
    )
    ADMITTED = "admitted", "Pod", "All checks passed."
    BAD_REQUEST = (
        "bad-request",
        "Pod",
        "Purser cannot parse the pod's GPU request.",
        "Correct the resource or annotation that the message names.",
    )
    PRIVILEGED_SHARE = (
        "privileged-share",
        "Pod",
        "A privileged container requests a share of a GPU but sees all GPUs on its node.",
        "Remove privileged, or request whole GPUs.",
    )
    NODE_PRESET = (
        "node-preset",
        "Pod",
        "The pod sets spec.nodeName, which skips the scheduler.",
        "Use a node selector or node affinity.",
    )
    FORGED_GRANT = (
        "forged-grant",
        "Pod",
        "A new pod carries a grant, which only a Binding may add, or a user other than the scheduler binds a pod with "
        "one.",
        "Remove the annotations that the message names.",
    )
    FORGED_RECORD = (
        "forged-record",
        "Pod",
        "A new pod already has another system's placement record.",
        "Remove the annotations that the message names.",
    )
    PROBE = (
        "probe",
        "Binding",
        "The scheduler sends this dry-run Binding to test whether the API server calls the webhook. Always denied.",
    )
    CHANGED_GRANT = (
        "changed-grant",
        "Pod",
        "The update changes a grant or exempts the pod from the webhook.",
        "Leave Purser's annotations and labels as they are.",
    )
    CHANGED_RECORD = (
        "changed-record",
        "Pod",
        "A user changes pod annotations that another vendor's device plugin reads or writes.",
        "Leave the annotations named in the message unchanged; if the plugin made the change, configure its account.",
    )
    NOT_MUTATED = (
        "not-mutated",
        "Pod",
        "The pod lacks fields that the mutating webhook sets, or has other values in them.",
        "Recreate the pod. If the pod is denied again, look for another webhook that removes or changes the fields.",
    )
    WEBHOOK_IGNORED = (
        "webhook-ignored",
        "Pod",
        "A label exempts the pod from the webhook, which then checks only that the pod names no devices and carries "
        "no grant.",
        (
            "If the pod requests GPUs, create it without that label: Purser does not place pods "
            "with the label, and if another scheduler places the pod, it fails with NoGrant."
        ),
    )
    NOT_ITS_NODE = (
        "not-its-node",
        "Node",
        "An account on a node, or the scheduler's, writes something that it may not write, or evicts a pod of "
        "another node.",
        "See docs/rights.md. If this is not an attack, an agent runs with the wrong account.",
    )
    DEVICES_UNASKED = (
        "devices-unasked",
        "Pod",
        "The pod's spec gives it access to GPUs that it does not request.",
        "Remove what the message names, or have the administrator trust the namespace.",
    )
    WIDENED_SHARE = (
        "widened-share",
        "Pod",
        "The pod's spec would lift the limits of its GPU share.",
        "Remove what the message names.",
    )
    UNENFORCED = (
        "enforcement-disabled",
        "Pod",
        "The pod requires its share limits to be enforced, but a container disables enforcement.",
        "Remove the variable or the annotation that the message names.",
    )
    NO_ROOM_FOR_GRANT = (
        "no-room-for-grant",
        "Pod",
        "The pod's annotations are so large that its grant does not fit.",
        "Move the data to a ConfigMap.",
    )


_ADMITTED_REASONS = {
    DecisionReason.NOT_A_POD,
    DecisionReason.MIRROR_POD,
    DecisionReason.NO_GPU,
    DecisionReason.OTHER_SCHEDULER,
    DecisionReason.ADMITTED,
    DecisionReason.WEBHOOK_IGNORED,
}


class Decision(msgspec.Struct, frozen=True):
    """What becomes of the object."""

    allowed: bool
    why: DecisionReason
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


_MAX_WARNING_CHARACTERS = 4096
"""Characters, as many as the API server passes on of all warnings of a request together."""

_review_reader = JsonReader(_Review, "the AdmissionReview", max_bytes=WEBHOOK_BODIES.per_body)
_object_reader: JsonReader[Any] = JsonReader(
    Any, "the object in the AdmissionReview", max_bytes=WEBHOOK_BODIES.per_body
)


def decode_review(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview. Raises `ReviewError`."""
    try:
        review = _review_reader.read(body)
    except UnreadableError as error:
        raise ReviewError(f"the body is not an AdmissionReview: {error}") from error
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        raise ReviewError(
            brief(f"the body is {review.kind!r} in {review.api_version!r}, not AdmissionReview in {API_VERSION}")
        )
    if review.request is None:
        raise ReviewError("the AdmissionReview has no request")
    return review.request


def decode_object(data: msgspec.Raw) -> Any:
    """The object of a request as plain values. Raises `ReviewError`."""
    try:
        return _object_reader.read(data)
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
        # They quote the object's author, and the API server drops those with control characters.
        response["warnings"] = [brief(each, _MAX_WARNING_CHARACTERS) for each in decision.warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
