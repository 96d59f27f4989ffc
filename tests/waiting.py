"""How long a test waits for what must happen: as long as pytest-timeout lets it run, less the time to say what did not.

A limit of its own for each wait is missed by chance on a busy machine, and tells nothing that this one does not.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

LAST_WORDS_S = 10.0
"""From the end of a wait to the end of the process: for the report, and for fixtures that stop what they started."""
_ends_at = math.inf


def begins(limit_s: float) -> None:
    """pytest-timeout's limit of the test that begins now, its fixtures included."""
    global _ends_at
    _ends_at = time.monotonic() + limit_s


def ends() -> None:
    """Also for tests without a limit, which no other follows."""
    global _ends_at
    _ends_at = math.inf


def is_over() -> bool:
    """Whether a wait of this test ends now."""
    return time.monotonic() >= _ends_at - LAST_WORDS_S


def limit() -> asyncio.Timeout:
    """The same as a context: of what waits by itself, such as a lab until it is ready."""
    left_s = _ends_at - LAST_WORDS_S - time.monotonic()
    return asyncio.timeout(None if math.isinf(left_s) else left_s)


async def eventually(check: Callable[[], Any], every_s: float = 0.02) -> Any:
    """Poll until true; works for coroutine functions, too. ``every_s``: longer for what asks a server."""
    async with limit():
        while True:
            found = check()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            await asyncio.sleep(every_s)
