"""A feed for each person who has logged in: of what the read API shows to their token.

Nothing is shared between tokens, and nothing is kept for one that is refused: whatever a viewer may not see never comes
near their pages.
"""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import structlog

from purser.kube import Clock, KubeError
from purser.top.source import StateSource
from purser.web.feed import Feed

log = structlog.get_logger("purser.web")

MAX_VIEWERS = 32
"""Whose fleets are kept in memory at once."""
MAX_STARTING = 8
"""Logins that wait for the read API at once, including those that it then refuses. They do not count as viewers, so a
flood of unknown tokens takes no viewer's place."""
IDLE_S = 120.0
"""How long a fleet is kept that nobody looks at."""
_IDLE_CHECK_S = 15.0


@dataclass(frozen=True)
class Viewer:
    """A bearer token, and the namespace whose part of the state is shown; empty: the whole."""

    token: str = field(repr=False)
    namespace: str

    @property
    def key(self) -> bytes:
        """Identifies the viewer without keeping the token as a key."""
        return hashlib.sha256(f"{self.namespace} {self.token}".encode()).digest()


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
        starting = sum(not view.first.done() for view in self._views.values())
        if starting >= MAX_STARTING or len(self._views) - starting >= MAX_VIEWERS:
            raise NotServedError("Too many viewers: try again later")
        view = _View(asyncio.get_running_loop().create_future(), self._clock.monotonic())
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

    async def _run_until_idle(self, feed: Feed, view: "_View") -> None:
        following = asyncio.ensure_future(feed.run())
        reading = asyncio.ensure_future(feed.wait_for_newer(0))
        try:
            await asyncio.wait({following, reading}, return_when=asyncio.FIRST_COMPLETED)
            if feed.version:
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
    def __init__(self, first: asyncio.Future[Feed], used_at: float) -> None:
        self.first = first
        """The feed, once it has read the fleet."""
        self.used_at = used_at
        self.task: asyncio.Future[None]
        first.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waited may have left

    def fail(self, error: Exception) -> None:
        """Tell those who wait for the feed that there will be none."""
        if not self.first.done():
            self.first.set_exception(error)
