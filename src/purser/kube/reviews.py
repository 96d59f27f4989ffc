"""Whose a bearer token is, and what a user may do, as the API server says: TokenReview and SubjectAccessReview."""

from typing import Any

import msgspec

from purser.kube.client import Client
from purser.kube.objects import Slim
from purser.kube.resources import Resource


class ReviewedUser(Slim, frozen=True):
    """Who somebody is, as authenticators and authorizers know them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


class TokenReviewStatus(Slim, frozen=True):
    """What became of a token."""

    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()
    audiences: tuple[str, ...] = ()
    """Those of the question that the token is for; empty: the API server itself."""
    error: str = ""


class TokenReview(Slim, frozen=True):
    """A question whose a token is, answered."""

    status: TokenReviewStatus = TokenReviewStatus()


class AccessReviewStatus(Slim, frozen=True):
    """Whether somebody may do something."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class AccessReview(Slim, frozen=True):
    """A question whether somebody may do something, answered."""

    status: AccessReviewStatus = AccessReviewStatus()


TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, TokenReview)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, AccessReview
)


async def review_token(client: Client, token: str, audience: str = "") -> ReviewedUser | None:
    """Whose a token is that was made for this audience, or for the API server where none is named; None: it is
    nobody's, has expired, or is for others. Raises `KubeError`."""
    spec = {"token": token, **({"audiences": [audience]} if audience else {})}
    status = (await client.create(TOKEN_REVIEWS, {"metadata": {}, "spec": spec})).status
    # A server that knows of no audiences passes over the question, and leaves them out of its answer.
    is_for_it = not audience or audience in status.audiences
    return status.user if status.authenticated and is_for_it and status.user.username else None


async def review_path(client: Client, user: ReviewedUser, verb: str, path: str) -> bool:
    """Whether a user may use a verb (``get``) on a path that is no resource's. Raises `KubeError`."""
    return await _review(client, user, {"nonResourceAttributes": {"path": path, "verb": verb}})


async def review_resource(
    client: Client, user: ReviewedUser, verb: str, resource: Resource[Any], namespace: str = ""
) -> bool:
    """Whether a user may use a verb (``list``) on the objects of a kind, in all namespaces where none is named.
    Raises `KubeError`."""
    what = {"group": resource.group, "version": resource.version, "resource": resource.plural, "verb": verb}
    return await _review(client, user, {"resourceAttributes": {**what, "namespace": namespace}})


async def _review(client: Client, user: ReviewedUser, attributes: dict[str, Any]) -> bool:
    who: dict[str, Any] = {"user": user.username, **msgspec.to_builtins(user)}
    who.pop("username")
    spec = {**{key: value for key, value in who.items() if value}, **attributes}
    status = (await client.create(ACCESS_REVIEWS, {"metadata": {}, "spec": spec})).status
    return status.allowed and not status.denied
