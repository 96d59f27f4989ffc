"""Whose a bearer token is, and what its user may read: the API server's word, remembered for seconds.

As Kubernetes' own servers delegate it: a TokenReview, then SubjectAccessReviews. The whole state is for those who may
``get`` its path, which is no resource's. A namespace's part of it is also for those who may list the namespace's pods,
and shows them all nodes if they may list nodes. A namespace's events are for those who may list them.
Tokens are remembered by their digest. Strangers cannot push out those who are known, nor keep the API server busy.
"""

import asyncio
import hashlib
import re
from typing import Any

import msgspec
import structlog

from purser.core.decoding import brief
from purser.kube import Client, Clock, KubeError
from purser.kube.resources import NODES, PODS, Resource
from purser.kube.reviews import ReviewedUser, review_path, review_resource, review_token
from purser.recent import Recent

log = structlog.get_logger("purser.scheduler")

STATE_PATH = "/v1/state"
READ_VERB = "get"
READ_AUDIENCE = "purser-read-api"
"""Of tokens that are made for the read API alone."""

VERDICT_TTL_S = 10.0
"""As Kubernetes' servers do by default: for so long a token that was revoked still counts."""
MAX_KNOWN = 512
"""Tokens that are remembered, of each kind: those that may read, and those that may not. A token counts once for each
namespace that it was used for."""
MAX_TOKEN_BYTES = 8 * 1024
"""What fits a header that aiohttp takes. Tokens of OIDC providers with many groups have some KiB."""
MAX_UNKNOWN_TOKENS = 4
"""Tokens that are reviewed at once, of those that could not read before; as many again of the others."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750; anything else is not a token, and the API server need not be asked."""


class AccessVerdict(msgspec.Struct, frozen=True):
    """What a request is answered with, before anything is read."""

    status: int
    """200: it may read; 401, 403 or 503."""
    user: str = ""
    message: str = ""
    sees_nodes: bool = False
    """Whether it may know of all nodes, and not only of those that the namespace's pods are on."""


_UNKNOWN = AccessVerdict(401, message="the bearer token is invalid or has expired")
_BUSY_VERDICT = AccessVerdict(503, message="too many tokens are being reviewed: try again")
_API_SERVER_AWAY = AccessVerdict(
    503, message="the API server could not check the token: try again, or see the log of Purser's scheduler"
)


class AccessControl:
    """Asks the API server about the tokens of requests."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._allowed: Recent[bytes, tuple[AccessVerdict, float]] = Recent(MAX_KNOWN)
        self._refused: Recent[bytes, tuple[AccessVerdict, float]] = Recent(MAX_KNOWN)
        self._under_way: dict[bytes, asyncio.Task[AccessVerdict]] = {}
        self._strangers: set[bytes] = set()
        """Those under way that could not read before."""

    async def verdict(
        self, authorization: str, namespace: str | None = None, listed: Resource[Any] = PODS
    ) -> AccessVerdict:
        """Of the header ``Authorization`` of a request for the whole state, or for a namespace's part of it, or for
        other objects in the namespace (``listed``)."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return AccessVerdict(401, message="a bearer token is required: Authorization: Bearer TOKEN")
        if len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
            return _UNKNOWN
        key = hashlib.sha256(f"{namespace or ''} {listed.plural} {token}".encode()).digest()
        now = self._clock.monotonic()
        before = self._allowed.get(key)
        known = before or self._refused.get(key)
        if known is not None and now < known[1]:
            return known[0]
        if (task := self._under_way.get(key)) is None:
            is_stranger = before is None
            number = len(self._strangers) if is_stranger else len(self._under_way) - len(self._strangers)
            if number >= MAX_UNKNOWN_TOKENS:
                return _BUSY_VERDICT
            task = self._under_way[key] = asyncio.ensure_future(self._review(token, namespace, listed))
            if is_stranger:
                self._strangers.add(key)
            task.add_done_callback(lambda done: self._finish_review(key, done))
        return await asyncio.shield(task)  # others wait for it where this request is given up

    def _finish_review(self, key: bytes, task: asyncio.Task[AccessVerdict]) -> None:
        self._under_way.pop(key, None)
        self._strangers.discard(key)
        if task.cancelled() or task.exception() is not None:
            return
        verdict = task.result()
        if verdict.status == 503:
            return
        self._allowed.forget(key)
        self._refused.forget(key)
        where = self._allowed if verdict.status == 200 else self._refused
        where.put(key, (verdict, self._clock.monotonic() + VERDICT_TTL_S))

    async def _review(self, token: str, namespace: str | None, listed: Resource[Any]) -> AccessVerdict:
        try:
            # Tokens for this audience are good for nothing else; logins by OIDC have none but the API server's.
            user = await review_token(self._client, token, READ_AUDIENCE) or await review_token(self._client, token)
            if user is None:
                return _UNKNOWN
            if namespace is None:
                return await self._cluster_verdict(user)
            if listed is PODS:
                return await self._namespace_verdict(user, namespace)
            return await self._list_verdict(user, namespace, listed)
        except KubeError as error:
            log.warning("Failed to review a token for the read API", error=brief(error))
            return _API_SERVER_AWAY

    async def _cluster_verdict(self, user: ReviewedUser) -> AccessVerdict:
        name = brief(user.username)
        if await review_path(self._client, user, READ_VERB, STATE_PATH):
            return AccessVerdict(200, name, sees_nodes=True)
        message = (
            f'user "{name}" is not allowed to {READ_VERB} {STATE_PATH}: bind the user to the ClusterRole purser-view'
        )
        return AccessVerdict(403, name, message)

    async def _namespace_verdict(self, user: ReviewedUser, namespace: str) -> AccessVerdict:
        name = brief(user.username)
        if await review_resource(self._client, user, "list", PODS, namespace):
            return AccessVerdict(200, name, sees_nodes=await review_resource(self._client, user, "list", NODES))
        if await review_path(self._client, user, READ_VERB, STATE_PATH):
            return AccessVerdict(200, name, sees_nodes=True)
        return _not_allowed_to_list(name, namespace, PODS)

    async def _list_verdict(self, user: ReviewedUser, namespace: str, listed: Resource[Any]) -> AccessVerdict:
        """The right to read the state says nothing of these objects."""
        name = brief(user.username)
        if await review_resource(self._client, user, "list", listed, namespace):
            return AccessVerdict(200, name)
        return _not_allowed_to_list(name, namespace, listed)


def _not_allowed_to_list(name: str, namespace: str, listed: Resource[Any]) -> AccessVerdict:
    message = f'user "{name}" is not allowed to list {listed.plural} in namespace "{namespace}"'
    return AccessVerdict(403, name, message)
