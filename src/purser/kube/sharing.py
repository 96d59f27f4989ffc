"""Answers that all share who ask for them at about the same time."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from purser.kube.clock import Clock

AnswerT = TypeVar("AnswerT")


class SharedAnswer(Generic[AnswerT]):
    """The answer to a question, while it is on its way, or new."""

    def __init__(
        self,
        asking: Coroutine[Any, Any, AnswerT],
        clock: Clock,
        fresh_for_s: float,
        *,
        ends_unwanted: bool = False,
    ) -> None:
        """``ends_unwanted``: whether asking ends once all who waited for it have left."""
        self._clock, self._fresh_for_s, self._fresh_until = clock, fresh_for_s, 0.0
        self._ends_unwanted, self._waiting, self._is_given_up = ends_unwanted, 0, False
        self._task = asyncio.ensure_future(asking)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[AnswerT]") -> None:
        self._fresh_until = self._clock.monotonic() + self._fresh_for_s
        if not task.cancelled():
            task.exception()  # whoever waited may have left

    @property
    def is_old(self) -> bool:
        """Whether the question has to be asked again."""
        return self._is_given_up or (self._task.done() and self._clock.monotonic() >= self._fresh_until)

    async def answer(self) -> AnswerT:
        """Raises what asking raises."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if self._ends_unwanted and not self._waiting and not self._task.done():
                self._is_given_up = True
                self._task.cancel()
