"""Does the actions of a round."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby

import structlog

from purser.kube import ApiError, ConflictError, KubeError, NotFoundError, TooManyRequestsError
from purser.operator.acting.writer import FailedAction, Result, Writer, describe
from purser.operator.model import Action, Apply, Evict

log = structlog.get_logger("purser.operator")

AT_A_TIME = 16
"""Writes under way at once: a thousand nodes take seconds, and the API server has room for others."""


_PASSING = (404, 408, 409, 410, 429)
_SERVERS_FAULT = 500


async def perform(actions: Sequence[Action], writer: Writer, may_write: Callable[[], bool] = lambda: True) -> Result:
    """Do the actions in their order, those of one kind side by side; a failure keeps no other action from being done.

    ``may_write`` is asked before each one. Once it says no, nothing more is written.
    """
    done: list[Action] = []
    failures: list[FailedAction] = []

    async def one(action: Action) -> None:
        if not may_write():
            return
        failure = await _try(action, writer)
        if failure is None:
            done.append(action)
        else:
            failures.append(failure)

    for group in _groups(actions):
        await _side_by_side(one, group)
    return Result(tuple(done), tuple(failures), stopped=len(done) + len(failures) < len(actions))


def _groups(actions: Sequence[Action]) -> Iterator[list[Action]]:
    """Neighbours of one type; objects one by one, because a binding is refused before its role is there."""
    for kind, group in groupby(actions, key=type):
        if kind is Apply:
            yield from ([action] for action in group)
        else:
            yield list(group)


async def _side_by_side(do: Callable[[Action], Awaitable[None]], actions: Sequence[Action]) -> None:
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(action: Action) -> None:
        async with slots:
            await do(action)

    async with asyncio.TaskGroup() as group:
        for action in actions:
            group.create_task(one(action))


async def _try(action: Action, writer: Writer) -> FailedAction | None:
    words = describe(action)
    try:
        await writer.do(action)
    except (KubeError, LookupError) as error:
        failure = FailedAction(action, str(error), _is_expected(action, error), _lasts(error))
        say = log.info if failure.expected else log.warning
        say("A write was refused" if failure.expected else "A write failed", error=str(error), **words)
        return failure
    log.info("Written", **words)
    return None


def _is_expected(action: Action, error: Exception) -> bool:
    """A node, pod or object that went or changed since it was looked at; a disruption budget that says no."""
    if isinstance(error, TooManyRequestsError):
        return isinstance(action, Evict)
    if isinstance(error, NotFoundError):
        return not isinstance(action, Apply)  # what is applied need not be there, but its namespace and kind
    return isinstance(error, ConflictError)


def _lasts(error: Exception) -> bool:
    """Whether it is about the write itself: not about its moment, and not about a server that is away or overloaded."""
    if isinstance(error, ApiError):
        return error.status < _SERVERS_FAULT and error.status not in _PASSING
    return isinstance(error, LookupError)
