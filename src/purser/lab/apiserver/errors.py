"""The one error of the API server: a `Status` object on its way to a client.

Messages and reasons are Kubernetes' own (k8s.io/apimachinery/pkg/api/errors), because clients compare them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]
"""One decoded JSON object."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One invalid field: `reason` is Kubernetes' (FieldValueInvalid, FieldValueRequired...), `field` a path."""

    reason: str
    field: str
    message: str

    def to_json(self) -> Obj:
        """The entry of `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(Exception):
    """An answer other than success. `status()` is its body, `code` the HTTP status."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> Obj:
        """The `Status` object for the response body, or for an ERROR event of a watch."""
        body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


def _details(group: str, kind: str, name: str, **more: Any) -> Obj:
    details = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in details.items() if value not in ("", None)}


def qualified_resource(plural: str, group: str) -> str:
    """`deployments.apps`; `pods` in the core group."""
    return f"{plural}.{group}" if group else plural


def not_found(group: str, plural: str, name: str) -> StatusError:
    """404 for an object."""
    return StatusError(
        404, "NotFound", f'{qualified_resource(plural, group)} "{name}" not found', _details(group, plural, name)
    )


def no_such_path() -> StatusError:
    """404 for a path that no resource answers."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """409 on create."""
    message = f'{qualified_resource(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """409 on update or delete."""
    message = f'Operation cannot be fulfilled on {qualified_resource(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, plural, name))


def modified(group: str, plural: str, name: str) -> StatusError:
    """409: the resource version sent is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def precondition_failed(group: str, plural: str, name: str, wanted: str, actual: str) -> StatusError:
    """409: a write that was meant for an object of another uid, in the storage layer's words."""
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}"
    return conflict(group, plural, name, f"StorageError: invalid object, Code: 4, AdditionalErrorMsg: {why}")


def invalid(group: str, kind: str, name: str, causes: Iterable[Cause]) -> StatusError:
    """422 with every cause; one cause is printed plainly, several in brackets, as the real server does."""
    causes = list(causes)
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(group, kind, name, causes=[cause.to_json() for cause in causes])
    return StatusError(422, "Invalid", f'{qualified_resource(kind, group)} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """403."""
    subject = f'{qualified_resource(plural, group)} "{name}"' if name else qualified_resource(plural, group)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(group, plural, name))


def expired(message: str) -> StatusError:
    """410: the resource version or continue token is older than what the history still holds."""
    return StatusError(410, "Expired", message)


def method_not_allowed() -> StatusError:
    """405."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(got: str) -> StatusError:
    """415: names what was sent."""
    message = (
        f"the body of the request was in an unknown format ({got}) - accepted media types include: application/json"
    )
    return StatusError(415, "UnsupportedMediaType", message)
