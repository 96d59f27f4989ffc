"""How many requests of one kind there may be at once, of one user and of all."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

RETRY_AFTER = {"Retry-After": "1"}


class Places:
    """Whose requests take how many of them."""

    def __init__(self, most: int, most_of_a_user: int, what: str) -> None:
        """``what``: such as ``responses are still being sent``."""
        self._most, self._most_of_a_user, self._what = most, most_of_a_user, what
        self._by_user: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, user: str) -> AsyncIterator[None]:
        """While one is taken. Raises aiohttp's 429 and 503."""
        if self._by_user[user] >= self._most_of_a_user:
            raise web.HTTPTooManyRequests(
                text=f"{self._most_of_a_user} of your {self._what}: wait until one has ended\n", headers=RETRY_AFTER
            )
        if self._by_user.total() >= self._most:
            raise web.HTTPServiceUnavailable(text=f"too many {self._what}: try again\n", headers=RETRY_AFTER)
        self._by_user[user] += 1
        try:
            yield
        finally:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]
