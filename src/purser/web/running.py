"""Serves the pages on a port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from purser.kube import Clock
from purser.telemetry import listening
from purser.web.access import LOCAL_ADDRESS, LocalAccess
from purser.web.feed import Feed
from purser.web.history import UsageHistory
from purser.web.logins import LoginAccess
from purser.web.pages import Pages
from purser.web.serving import WEB_LIMITS, web_app
from purser.web.viewers import SourceFactory, Viewers


@asynccontextmanager
async def serving_pages(
    feed: Feed, clock: Clock, port: int, address: str = LOCAL_ADDRESS, *, history: UsageHistory | None = None
) -> AsyncIterator[str]:
    """Serve a feed on this machine until left, and give the URL; a ``port`` of 0 is a free one.

    Raises OSError where it is taken.
    """
    app = web_app(Pages(clock, history), LocalAccess(feed))
    async with listening(app, address, port, limits=WEB_LIMITS) as chosen:
        yield _url(address, chosen)


@asynccontextmanager
async def serving_logins(
    open_state_source: SourceFactory, clock: Clock, address: str, port: int, *, history: UsageHistory | None = None
) -> AsyncIterator[str]:
    """Serve people who log in, each from a source of their own, until left; else as `serving_pages`."""
    pages = Pages(clock, history)
    app = web_app(pages, LoginAccess(Viewers(open_state_source, clock), pages))
    async with listening(app, address, port, limits=WEB_LIMITS) as chosen:
        yield _url(address, chosen)


def _url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}/" if ":" in address else f"http://{address}:{port}/"
