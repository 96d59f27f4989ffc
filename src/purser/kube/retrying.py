"""Calls that are retried until the API server accepts them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from purser.kube.backoff import Backoff
from purser.kube.clock import Clock, SystemClock
from purser.kube.errors import KubeError

log = structlog.get_logger("purser.kube")

INITIAL_BACKOFF_S = 0.5
MAX_BACKOFF_S = 5.0

MAX_WRITE_CONFLICTS = 5
"""How often an object is read and written again because somebody else wrote it meanwhile."""

T = TypeVar("T")


async def retry_until_accepted(attempt: Callable[[], Awaitable[T]], complaint: str, clock: Clock | None = None) -> T:
    """Retry ``attempt`` until it raises no `KubeError`, and return its result. Each failure is logged as ``complaint``.

    Pauses grow (`purser.kube.backoff.Backoff`) up to `MAX_BACKOFF_S` seconds.
    """
    clock, backoff = clock or SystemClock(), Backoff(INITIAL_BACKOFF_S, MAX_BACKOFF_S)
    while True:
        try:
            return await attempt()
        except KubeError as error:
            pause = backoff.next()
            log.warning(complaint, error=str(error), retry_in_s=round(pause, 1))
        await clock.sleep(pause)
