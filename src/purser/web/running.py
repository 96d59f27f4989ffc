"""Serves the pages of a feed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from purser.kube import Clock
from purser.telemetry import listening
from purser.web.feed import Feed
from purser.web.serving import LOCAL_ADDRESS, WEB_LIMITS, web_app


@asynccontextmanager
async def serving_pages(feed: Feed, clock: Clock, port: int) -> AsyncIterator[str]:
    """Serve until left, and give the address; a ``port`` of 0 is a free one. Raises OSError where it is taken."""
    async with listening(web_app(feed, clock), LOCAL_ADDRESS, port, limits=WEB_LIMITS) as chosen:
        yield f"http://{LOCAL_ADDRESS}:{chosen}/"
