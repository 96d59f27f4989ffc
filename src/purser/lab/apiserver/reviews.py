"""Resources that are questions: token reviews and access reviews. Known users may do everything, but those that are
there to have no permissions."""

from collections.abc import Mapping

from .cluster import API_AUDIENCE, ApiRequest, User
from .errors import Obj
from .writes import decode_incoming


def answer(call: ApiRequest, body: Obj, tokens: Mapping[str, User]) -> Obj:
    """The review with its status filled in."""
    review = decode_incoming(call, body)
    if call.resource.plural == "tokenreviews":
        review["status"] = _authenticated(review.get("spec") or {}, tokens)
    else:
        review["status"] = _access(call, str((review.get("spec") or {}).get("user", "")), tokens)
    return review


def _access(call: ApiRequest, name: str, tokens: Mapping[str, User]) -> Obj:
    """``name``: of a SubjectAccessReview; the other kinds ask about who asks."""
    users = [call.user] if not name else [user for user in tokens.values() if user.name == name]
    if any(user.has_rights for user in users):
        return {"allowed": True, "reason": "the lab grants this user all permissions"}
    return {"allowed": False, "reason": "the user has no permissions"}


def _authenticated(spec: Obj, tokens: Mapping[str, User]) -> Obj:
    """``spec`` of a TokenReview; one that names no audience means this server."""
    user = tokens.get(spec.get("token", ""))
    wanted = spec.get("audiences") or [API_AUDIENCE]
    audiences = [] if user is None else [each for each in user.audiences if each in wanted]
    if user is None or not audiences:
        return {"authenticated": False, "error": "the token is unknown or meant for another audience"}
    return {"authenticated": True, "user": user.to_json(), "audiences": audiences}
