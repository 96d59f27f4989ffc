"""The loop in a terminal, where something of it fails."""

import asyncio
import os
import pty
import signal
from contextlib import contextmanager

from tests.unit.top.emulated import EmulatedScreen

from purser.kube import SystemClock
from purser.top.lines import Span
from purser.top.running import Top
from purser.top.terminal import Terminal
from purser.top.view_names import TopView

from .states import cluster, waiting


class FailingSource:
    """Knows a pod that waits, and fails on why."""

    where = "https://api"
    problem = ""
    state = cluster((), (), (waiting("big"),))

    def wants(self, uids):
        pass

    async def run(self, on_change):
        on_change()
        await asyncio.Event().wait()

    async def details(self, namespace, pod):
        raise ZeroDivisionError(f"of {namespace}/{pod}\x1b[2J")


@contextmanager
def terminal():
    """A terminal, and what reads it."""
    leader, follower = pty.openpty()
    try:
        yield Terminal(follower, follower, {"TERM": "xterm"}), leader
    finally:
        os.close(follower)


async def test_a_question_that_fails_is_answered_by_its_error():
    with terminal() as (display, leader), display:
        screen = EmulatedScreen(80, 24)
        os.set_blocking(leader, False)
        asyncio.get_running_loop().add_reader(leader, lambda: screen.feed(os.read(leader, 65536)))
        running = asyncio.ensure_future(Top(FailingSource(), display, SystemClock(), TopView.WAITING).run())

        async def shows(text):
            async with asyncio.timeout(60):
                while text not in "\n".join(screen.text):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

        await shows("big")
        os.write(leader, b"\r")
        await shows("an error occurred in Purser: ZeroDivisionError: of default/big")
        assert "asking why" not in "\n".join(screen.text)
        os.write(leader, b"qq")
        await running
        asyncio.get_running_loop().remove_reader(leader)
        os.close(leader)


def test_a_terminal_that_is_gone_is_no_error():
    with terminal() as (display, leader), display:
        assert display.paint([(Span("a"),)])
        assert not display.is_gone
        os.close(leader)
        display.forget()
        assert display.paint([(Span("b"),)])
        assert (display.is_gone, display.is_behind) == (True, False)


async def test_a_session_ends_with_its_terminal():
    with terminal() as (display, leader), display:
        running = asyncio.ensure_future(Top(FailingSource(), display, SystemClock()).run())
        await asyncio.sleep(0)
        asyncio.get_running_loop().remove_reader(display.input_fd)  # the screen alone is gone
        os.close(leader)
        signal.raise_signal(signal.SIGWINCH)  # all of it is drawn again
        async with asyncio.timeout(60):
            await running
