"""Blocking calls that may never return, off the event loop.

A driver call on a failing GPU can hang for ever. Threads of an executor would then keep the process from ending; these
are daemon threads, one per call, and a waiter can give up.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_in_thread(call: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """Start a blocking call in a daemon thread; the future has its result or exception.

    Cancelling the future does not stop the call.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only where T has it

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed since: no waiter is left
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
