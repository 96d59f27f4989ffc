"""Who may see the pages, and whose view of the cluster they get."""

import ipaddress
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from purser.web.feed import Feed
from purser.web.pages import FEED

LOCAL_ADDRESS = "127.0.0.1"
PUBLIC_PATHS = ("/static/", "/healthz", "/readyz", "/metrics")
"""They show nothing of the cluster."""


class Access(Protocol):
    """Stands before the pages."""

    @property
    def middleware(self) -> Middleware:
        """Gives each request that is let in its `FEED`, and answers the others."""
        ...

    @property
    def routes(self) -> Sequence[web.RouteDef]:
        """Addresses of its own."""
        ...

    def problems(self) -> Sequence[str]:
        """Why the server is not ready; empty: it is."""
        ...

    def end(self) -> None:
        """Let all streams end."""
        ...


class LocalAccess:
    """For a server on this machine's own addresses: whoever can connect sees what the one who started it may see.

    As `kubectl proxy` does, it answers only requests that name this machine as their host: a page of another site that
    has its own name lead here (DNS rebinding) reads nothing.
    """

    routes: Sequence[web.RouteDef] = ()

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    @property
    def middleware(self) -> Middleware:
        """As `Access` has it."""

        @web.middleware
        async def refuse_other_machines(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not is_local_host(request.headers.get("Host", "")):
                raise web.HTTPForbidden(
                    text=f"Requests must be for {LOCAL_ADDRESS} or localhost, not for another host name."
                )
            request[FEED] = self._feed
            return await handler(request)

        return refuse_other_machines

    def problems(self) -> Sequence[str]:
        """As `Access` has it."""
        return () if self._feed.version else ("the cluster has not been read yet",)

    def end(self) -> None:
        """As `Access` has it."""
        self._feed.end()


def is_local_host(host: str) -> bool:
    """Whether a Host header, ``NAME``, ``NAME:PORT`` or ``[IPv6]:PORT``, is a loopback address or localhost."""
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
