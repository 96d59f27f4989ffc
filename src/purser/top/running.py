"""The loop: keys, sizes and news of the cluster come in, and what changed on the screen goes out."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from purser.core.state import ClusterState
from purser.kube import Clock
from purser.top import keys
from purser.top.drawing import Shown, drawn, help_lines, layout_of, page_length, shown_columns
from purser.top.holding import holder_lines
from purser.top.keys import KeyReader
from purser.top.lines import clean
from purser.top.screen import Screen, handle_key, settled
from purser.top.source import StateSource
from purser.top.terminal import Terminal
from purser.top.view_names import TopView
from purser.top.views import ViewTable, columns_of, filtered, rows_of_view, table_of

_FRAME_S = 0.05
"""At least between two frames."""
_AGE_REFRESH_PERIOD_S = 5.0
"""How often ages are counted again."""
_ESCAPE_TIMEOUT_S = 0.1
"""After an Escape with nothing behind it, it was the key."""
_READ_BYTES = 4096

log = structlog.get_logger("purser.top")

_EMPTY = ClusterState("", 0, None, (), (), ())


class Top:
    """One session."""

    def __init__(self, source: StateSource, terminal: Terminal, clock: Clock, view: TopView = TopView.NODES) -> None:
        self._source, self._terminal, self._clock = source, terminal, clock
        self._screen = Screen(view)
        self._keys = KeyReader()
        self._made: tuple[ClusterState, object, ViewTable] | None = None
        """All rows of the view, and what they were made of."""
        self._found: tuple[str, ViewTable] | None = None
        """Those with the filter's text in them."""
        self._dirty = asyncio.Event()
        self._page: list[str] = []
        self._asking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the user, or a signal, ends it. Raises what the source raises."""
        loop = asyncio.get_running_loop()
        with _signals(loop, self._end, self._resized):
            loop.add_reader(self._terminal.input_fd, self._read)
            following = asyncio.ensure_future(self._source.run(self._dirty.set))
            following.add_done_callback(lambda _: self._dirty.set())
            try:
                self._dirty.set()
                while not self._screen.is_over and not following.done():
                    await self._next_frame()
                if following.done():
                    following.result()
            finally:
                loop.remove_reader(self._terminal.input_fd)
                loop.remove_writer(self._terminal.output_fd)
                for task in (following, self._asking):
                    if task is not None:
                        task.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _next_frame(self) -> None:
        try:
            async with asyncio.timeout(_AGE_REFRESH_PERIOD_S):
                await self._dirty.wait()
        except TimeoutError:
            pass
        self._dirty.clear()
        if self._screen.is_over:
            return
        self._draw()
        if self._terminal.is_gone:
            self._end()
        await asyncio.sleep(_FRAME_S)

    def _draw(self) -> None:
        loop = asyncio.get_running_loop()
        if self._terminal.is_behind and not self._terminal.flush():
            loop.add_writer(self._terminal.output_fd, self._resume_drawing)
            return
        cells, lines = self._terminal.size()
        table, height = self._current(), layout_of(lines, self._source.state).height
        self._screen = settled(self._screen, table, height)
        if self._screen.view is TopView.WAITING:
            top = self._screen.choice.top
            self._source.wants([row.key for row in table.rows[top : top + height]])
        self._clip_page(cells, height + 1)
        source = self._source
        shown = Shown(self._screen, table, source.state, source.where, source.problem, self._page)
        self._terminal.paint(drawn(shown, cells, lines))
        if self._terminal.is_behind:
            loop.add_writer(self._terminal.output_fd, self._resume_drawing)

    def _resume_drawing(self) -> None:
        if self._terminal.flush():
            asyncio.get_running_loop().remove_writer(self._terminal.output_fd)
            self._dirty.set()

    def _clip_page(self, cells: int, height: int) -> None:
        text = help_lines(self._source.state) if self._screen.help else self._page
        most = max(page_length(text, cells) - height, 0)
        if self._screen.page_top > most:
            self._screen = replace(self._screen, page_top=most)

    def _current(self) -> ViewTable:
        """The table of the view, made again only where something of it has changed."""
        screen, now = self._screen, self._clock.now().timestamp()
        state = self._source.state or _EMPTY
        choice = screen.choice
        aged = now // _AGE_REFRESH_PERIOD_S if screen.view is TopView.WAITING else 0
        made_of = (screen.view, choice.sort, choice.down, aged)
        if self._made is None or self._made[0] is not state or self._made[1] != made_of:
            self._made = (state, made_of, table_of(screen.view, state, now, sort=choice.sort, down=choice.down))
            self._found = None
        if self._found is None or self._found[0] != screen.find:
            self._found = (screen.find, filtered(self._made[2], screen.find))
        return self._found[1]

    def _read(self) -> None:
        try:
            data = os.read(self._terminal.input_fd, _READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._end()
            return
        for key in self._keys.feed(data):
            self._handle_key(key)
        if self._keys.is_waiting:
            asyncio.get_running_loop().call_later(_ESCAPE_TIMEOUT_S, self._handle_lone_escape)

    def _handle_lone_escape(self) -> None:
        for key in self._keys.flush():
            self._handle_key(key)

    def _handle_key(self, key: str) -> None:
        if key == keys.REDRAW:
            self._resized()
            return
        cells, lines = self._terminal.size()
        had_details = self._screen.details
        found = self._found if self._screen.typed is not None else None  # while it is typed no row is asked about
        table = found[1] if found is not None else self._current()
        columns = shown_columns(table, cells, self._screen.choice.sort)
        self._screen = handle_key(self._screen, key, table, layout_of(lines, self._source.state).height, columns)
        if self._screen.details and not had_details:
            self._ask()
        self._dirty.set()

    def _ask(self) -> None:
        """Fill the page of details: what is known at once, and the pod's why once it is found."""
        if self._asking is not None:
            self._asking.cancel()
        screen, state = self._screen, self._source.state or _EMPTY
        subjects = dict(rows_of_view(screen.view, state))
        subject = subjects.get(screen.choice.key)
        if subject is None:
            self._page = []
            return
        now = self._clock.now().timestamp()
        fields = [f"{column.head:<12} {clean(column.read(subject))}" for column in columns_of(screen.view, now)]
        self._page = fields
        if screen.view in (TopView.PODS, TopView.WAITING):
            self._page = [*fields, "", "asking why ..."]
            self._asking = asyncio.ensure_future(self._explain(fields, subject.namespace, subject.pod))
        elif screen.view is TopView.NODES:
            self._page = [*fields, "", *holder_lines(state, subject.name)]
        else:
            self._page = [*fields, "", *holder_lines(state, subject[0].name, subject[1].uuid)]

    async def _explain(self, fields: list[str], namespace: str, pod: str) -> None:
        try:
            lines = await self._source.details(namespace, pod)
        except Exception as error:
            log.exception("Failed to explain why a pod is waiting or where it was placed", namespace=namespace, pod=pod)
            lines = [f"an error occurred in Purser: {type(error).__name__}: {error}"]
        self._page = [*fields, "", *(clean(line) if line else "" for line in lines)]
        self._dirty.set()

    def _end(self) -> None:
        self._screen = replace(self._screen, is_over=True)
        self._dirty.set()

    def _resized(self) -> None:
        self._terminal.forget()
        self._dirty.set()


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, end: object, resized: object) -> Iterator[None]:
    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: end, signal.SIGWINCH: resized}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
