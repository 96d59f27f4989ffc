"""Answers that all share who ask for them at about the same time."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from purser.kube import Clock

AnswerT = TypeVar("AnswerT")


class SharedAnswer(Generic[AnswerT]):
    """The answer to a question, while it is on its way, or new."""

    def __init__(self, asking: Coroutine[Any, Any, AnswerT], clock: Clock, fresh_for_s: float) -> None:
        self._task = asyncio.ensure_future(asking)
        self._task.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waited may have left
        self._fresh_until = clock.monotonic() + fresh_for_s

    def is_old(self, clock: Clock) -> bool:
        """Whether the question has to be asked again."""
        return self._task.done() and clock.monotonic() >= self._fresh_until

    async def answer(self) -> AnswerT:
        """Raises what asking raises."""
        return await asyncio.shield(self._task)
