"""When this replica may decide: only as the active one, and only after reading the cluster as it was left.

Another replica may have bound pods until the moment it lost its lease. So becoming active means one consistent relist
before the first decision, and each loss of the lease makes the next one necessary.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from purser.kube import KubeError

RELIST_TIMEOUT_S = 10.0
"""How long one request waits for the relist: less than kube-scheduler's patience with an extender."""

INACTIVE_RECHECK_PERIOD_S = 5.0
"""After this a replica that is not active looks again at what only the active one does."""

log = structlog.get_logger("purser.scheduler")


class NotLeadingError(Exception):
    """This replica may not decide now; kube-scheduler tries again."""


class LeadershipGate:
    """Lets requests pass while active, the first ones once ``catch_up`` is through."""

    def __init__(
        self,
        may_bind: Callable[[], bool],
        catch_up: Callable[[], Awaitable[None]],
        timeout_s: float = RELIST_TIMEOUT_S,
    ):
        self._may_bind = may_bind
        self._catch_up = catch_up
        self._timeout_s = timeout_s
        self._term = 0
        self._open_term: int | None = None
        self._catching_up: asyncio.Task[None] | None = None

    def leadership_changed(self, held: bool) -> None:
        """The lease was won or lost: what was read before may be old."""
        self._term += 1
        if held:
            log.info("This replica is active")

    @property
    def is_open(self) -> bool:
        """Whether decisions may be made now, without waiting."""
        if not self._may_bind():
            self._open_term = None
        return self._open_term == self._term

    async def wait_until_open(self) -> None:
        """Return once decisions may be made. Raises `NotLeadingError` where that cannot be now."""
        while not self.is_open:
            if not self._may_bind():
                raise NotLeadingError("this replica of the scheduler is not active")
            if self._catching_up is None or self._catching_up.done():
                self._catching_up = asyncio.create_task(self._reopen(self._term))
            await self._wait(self._catching_up)

    async def close(self) -> None:
        """Stop catching up."""
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.wait({self._catching_up})

    async def _wait(self, task: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.shield(task)
        except TimeoutError:
            raise NotLeadingError("this replica has just become active and is still reading the cluster") from None
        except KubeError as error:
            raise NotLeadingError(
                f"this replica has just become active and cannot read the cluster: {error}"
            ) from error

    async def _reopen(self, term: int) -> None:
        await self._catch_up()
        if term == self._term:
            self._open_term = term
