"""What can go wrong between Purser and an API server.

::

    KubeError
    ├── ConfigError                  no usable kubeconfig or service account; names file and field
    ├── DecodeError                  the server answered with something that cannot be read
    ├── ApiUnavailableError          no answer: refused, reset, timed out; ``outcome_unknown`` for writes
    │   └── TlsError                 the two sides do not trust each other
    └── ApiError                     the server answered with a Status; status, reason, message, details
        ├── BadRequestError          400
        ├── UnauthorizedError        401
        ├── ForbiddenError           403
        ├── NotFoundError            404
        ├── ConflictError            409  the object changed since it was read, or an apply conflict
        ├── AlreadyExistsError       409, reason AlreadyExists
        ├── GoneError                410  (Gone, Expired): this resourceVersion or continue token is too old
        ├── InvalidError             422
        ├── TooManyRequestsError     429  ``retry_after_s``
        └── ServerError              5xx

AlreadyExistsError is not a ConflictError: one is answered by reading the object again, the other by leaving it alone.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from purser.core.decoding import JsonReader, UnreadableError


class KubeError(Exception):
    """Anything that this room raises on purpose."""


class ConfigError(KubeError):
    """The API server's address or the credentials cannot be determined; the message names file and field."""


class DecodeError(KubeError):
    """An answer of the API server that is not what the API promises."""


class ApiUnavailableError(KubeError):
    """The API server gave no answer."""

    def __init__(self, message: str, *, outcome_unknown: bool = False):
        super().__init__(message)
        self.outcome_unknown = outcome_unknown
        """True when the request may have been received: a write may have been carried out."""


class TlsError(ApiUnavailableError):
    """The TLS handshake failed: the server's certificate, ours, or the CA in the configuration is wrong."""


_MAX_RETRY_AFTER_S = 3600


class Status(msgspec.Struct, frozen=True):
    """A `metav1.Status`: the body of every refusal."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


class ApiError(KubeError):
    """The API server refused; subclasses say which way."""

    def __init__(self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None):
        super().__init__(f"{message} ({status} {reason})" if reason else f"{message} ({status})")
        self.status = status
        """The HTTP status."""
        self.reason = reason
        """The API's own word, such as ``NotFound``; empty when something in between answered."""
        self.message = message
        self.details: Mapping[str, Any] = details or {}

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait, in seconds; None when it does not say."""
        seconds = self.details.get("retryAfterSeconds")
        return float(min(seconds, _MAX_RETRY_AFTER_S)) if isinstance(seconds, int | float) and seconds > 0 else None


class BadRequestError(ApiError):
    """400: the request makes no sense."""


class UnauthorizedError(ApiError):
    """401: the credentials are missing, wrong or expired."""


class ForbiddenError(ApiError):
    """403: RBAC or an admission plugin says no."""


class NotFoundError(ApiError):
    """404: no such object, or no such resource."""


class ConflictError(ApiError):
    """409: the object changed since it was read, a precondition failed, or another manager owns an applied field."""


class AlreadyExistsError(ApiError):
    """409 on create: an object of this name is there."""


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class InvalidError(ApiError):
    """422: the object breaks a rule of its type; ``details.causes`` names the fields."""


class TooManyRequestsError(ApiError):
    """429: overload, or a disruption budget."""


class ServerError(ApiError):
    """5xx: the server, or a webhook it asked, failed."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}

_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExistsError,
    "Expired": GoneError,
    "Gone": GoneError,
}

_status_reader = JsonReader(Status, "a Status", max_bytes=16 * 1024 * 1024)
_MAX_FOREIGN_MESSAGE = 500


def error_from_status(status: Status, http_status: int = 0) -> ApiError:
    """The error that a Status stands for; ``http_status`` counts where the Status has no code."""
    code = status.code or http_status
    reason = status.reason or ""
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(code) or (ServerError if code >= 500 else ApiError)
    return kind(code, reason, status.message or "the API server sent no message", status.details)


def error_from_response(http_status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error that an HTTP answer stands for, also when a proxy wrote it and the body is not a Status."""
    try:
        status = _status_reader.read(body)
    except UnreadableError:
        text = body[:_MAX_FOREIGN_MESSAGE].decode(errors="replace").strip()
        status = Status(code=http_status, message=text)
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        status = msgspec.structs.replace(
            status, details={"retryAfterSeconds": int(retry_after[:6])} | (status.details or {})
        )
    return error_from_status(status, http_status)


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that a group of tasks ended with: the API server's, if there is one."""
    known = errors.subgroup(KubeError)
    found: BaseException = known if known is not None else errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
