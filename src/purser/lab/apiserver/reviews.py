"""Resources that are questions: token reviews and access reviews. Known tokens may do everything."""

from collections.abc import Mapping

from .cluster import ApiRequest, User
from .errors import Obj
from .writes import incoming


def answer(call: ApiRequest, body: Obj, tokens: Mapping[str, User]) -> Obj:
    """The review with its status filled in."""
    review = incoming(call, body)
    if call.resource.plural == "tokenreviews":
        review["status"] = _authenticated((review.get("spec") or {}).get("token", ""), tokens)
    else:
        review["status"] = {"allowed": True, "reason": "every known user may do everything in the lab"}
    return review


def _authenticated(token: str, tokens: Mapping[str, User]) -> Obj:
    user = tokens.get(token)
    return (
        {"authenticated": True, "user": user.to_json()} if user else {"authenticated": False, "error": "unknown token"}
    )
