"""A feed for each person who has logged in: of what the read API shows to their token.

Nothing is shared between tokens, and nothing is kept for one that is refused: whatever a viewer may not see never comes
near their pages.
"""

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import msgspec
import structlog

from purser.core.decoding import JsonReader
from purser.kube import Clock, KubeError
from purser.top.source import StateSource
from purser.web.feed import Feed

log = structlog.get_logger("purser.web")

MAX_VIEWERS = 32
"""Whose fleets are kept in memory at once. Beyond that, who has most of them gives up the one used least recently."""
MAX_STARTING = 8
"""Logins that wait for the read API at once, including those that it then refuses. They do not count as viewers, so a
flood of unknown tokens takes no viewer's place."""
IDLE_S = 120.0
"""How long a fleet is kept that nobody looks at."""
_IDLE_CHECK_S = 15.0
_TOO_MANY = "Too many viewers: try again later"


@dataclass(frozen=True)
class Viewer:
    """A bearer token, and the namespace whose part of the state is shown; empty: the whole."""

    token: str = field(repr=False)
    namespace: str

    @property
    def key(self) -> bytes:
        """Identifies the viewer without keeping the token as a key."""
        return hashlib.sha256(f"{self.namespace} {self.token}".encode()).digest()

    @property
    def person(self) -> object:
        """Equal for tokens of one user, as far as tokens say whose they are. Only for tokens that were accepted:
        anybody can write anything into others."""
        try:
            payload = self.token.split(".")[1]
            claims = _CLAIMS.read(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        except (IndexError, ValueError):
            claims = _Claims()
        return (claims.iss, claims.sub) if claims.sub else self.key


class _Claims(msgspec.Struct, frozen=True):
    iss: str = ""
    sub: str = ""


_CLAIMS = JsonReader(_Claims, "a token's claims", max_bytes=16 * 1024)


class NotServedError(KubeError):
    """This server has no feed for the viewer, whatever the read API may say."""


SourceFactory = Callable[[Viewer], AbstractAsyncContextManager[StateSource]]
"""The source must end when its token is refused."""


class Viewers:
    """All that are being served."""

    def __init__(self, open_state_source: SourceFactory, clock: Clock) -> None:
        self._open_state_source, self._clock = open_state_source, clock
        self._views: dict[bytes, _View] = {}

    async def feed_of(self, viewer: Viewer) -> Feed:
        """A viewer's feed, which has read the fleet at least once.

        Raises `ReadRefusedError`, `NotServedError`, and other `KubeError` where the read API does not answer.
        """
        view = self._views.get(viewer.key) or self._begin(viewer)
        view.used_at = self._clock.monotonic()
        return await asyncio.shield(view.first)

    def forget(self, viewer: Viewer) -> None:
        """End a viewer's streams, and keep nothing for them."""
        view = self._views.pop(viewer.key, None)
        if view is not None:
            view.task.cancel()

    def end(self) -> None:
        """Let all streams end, and forget everything."""
        for view in self._views.values():
            view.task.cancel()

    def _begin(self, viewer: Viewer) -> "_View":
        if sum(not view.first.done() for view in self._views.values()) >= MAX_STARTING:
            raise NotServedError(_TOO_MANY)
        view = _View(viewer, asyncio.get_running_loop().create_future(), self._clock.monotonic())
        self._views[viewer.key] = view
        view.task = asyncio.ensure_future(self._follow(viewer, view))
        return view

    async def _follow(self, viewer: Viewer, view: "_View") -> None:
        try:
            async with self._open_state_source(viewer) as source:
                feed = Feed(source, self._clock)
                try:
                    await self._run_until_idle(feed, view)
                finally:
                    feed.end()
                    self._remove(viewer, view)  # before the source is closed, which takes a while
        except Exception as error:
            if not isinstance(error, KubeError):
                log.exception("Failed to follow the read API for a viewer")
            elif view.first.done():
                log.info("A viewer's token is no longer accepted, or the read API does not answer", error=str(error))
            view.fail(error)
        finally:
            view.fail(NotServedError("You have logged out, or the server is stopping"))
            self._remove(viewer, view)

    def _remove(self, viewer: Viewer, view: "_View") -> None:
        if self._views.get(viewer.key) is view:
            del self._views[viewer.key]

    def _make_room(self, new: "_View") -> None:
        """For a viewer whose token was accepted. Raises `NotServedError` where as many people have a view each."""
        served = [view for view in self._views.values() if view.first.done()]
        if len(served) < MAX_VIEWERS:
            return
        counts = Counter(view.viewer.person for view in (*served, new))
        person, most = counts.most_common(1)[0]
        if most == 1:
            raise NotServedError(_TOO_MANY)
        theirs = [view for view in served if view.viewer.person == person]
        min(theirs, key=lambda view: view.used_at).task.cancel()

    async def _run_until_idle(self, feed: Feed, view: "_View") -> None:
        following = asyncio.ensure_future(feed.run())
        reading = asyncio.ensure_future(feed.wait_for_newer(0))
        try:
            await asyncio.wait({following, reading}, return_when=asyncio.FIRST_COMPLETED)
            if feed.version:
                self._make_room(view)
                view.first.set_result(feed)
            while not following.done() and (feed.watchers or self._clock.monotonic() - view.used_at < IDLE_S):
                await asyncio.wait({following}, timeout=_IDLE_CHECK_S)
            if following.done():
                following.result()
        finally:
            for task in (following, reading):
                task.cancel()
            await asyncio.gather(following, reading, return_exceptions=True)


class _View:
    def __init__(self, viewer: Viewer, first: asyncio.Future[Feed], used_at: float) -> None:
        self.viewer = viewer
        self.first = first
        """The feed, once it has read the fleet."""
        self.used_at = used_at
        self.task: asyncio.Future[None]
        first.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waited may have left

    def fail(self, error: Exception) -> None:
        """Tell those who wait for the feed that there will be none."""
        if not self.first.done():
            self.first.set_exception(error)
