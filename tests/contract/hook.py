"""An admission webhook that records what it is asked and answers what a test wants."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from purser.lab.apiserver.tls import make_identity

Decide = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Hook:
    """`reviews` holds every request in order; `decide` turns one into the response's fields."""

    url: str
    ca_bundle: str
    decide: Decide = lambda request: {"allowed": True}
    delay_seconds: float = 0.0
    reviews: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.reviews.append(review["request"])
        await asyncio.sleep(self.delay_seconds)
        response = {"uid": review["request"]["uid"], **self.decide(review["request"])}
        return web.json_response({**{key: review[key] for key in ("kind", "apiVersion")}, "response": response})

    def named(self, name: str) -> list[dict[str, Any]]:
        """What it was asked about one object, probes left out."""
        return [each for each in self.reviews if each.get("name") == name]


@asynccontextmanager
async def serving() -> AsyncIterator[Hook]:
    """A hook on a free port with a CA of its own."""
    identity = make_identity("127.0.0.1")
    hook = Hook("", base64.b64encode(identity.ca.encode()).decode())
    app = web.Application()
    app.router.add_post("/hook", hook.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=identity.server_context()).start()
    hook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield hook
    await runner.cleanup()


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    """An answer that allows with a JSON patch."""
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
    }
