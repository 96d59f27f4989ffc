"""Files of records, written by a thread: whoever hands records over waits for no disk."""

import contextlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import structlog

from purser.core.decisions.framing import MAGIC, DecisionLogError, encode
from purser.core.decisions.records import Record
from purser.scheduler.metrics import SchedulerMetrics

MAX_WAITING = 8192
"""Batches of records that wait to be written, of one decision each."""

MAX_WAITING_BYTES = 64 << 20
"""What these keep in memory: a decision on 5 000 nodes 100 kB until it is written."""

_LOOK_PERIOD_S = 0.02
"""Between two looks of the thread at what waits: to wake it costs a decision ten times what it costs to leave a batch
for its next look."""

_MAX_IDLE_LOOKS = 50
"""So many looks after the last batch the thread sleeps until it is woken."""

_MODE = 0o600
_PATTERN = "decisions-*.log"
_STOP_TIMEOUT_S = 5.0

log = structlog.get_logger("purser.scheduler")


class _Batch(NamedTuple):
    records: Iterable[Record]
    decisions: int
    begins: bool
    """Whether it is the first one of a file."""
    held_bytes: int


class LogFiles:
    """The files of one folder. Older ones are removed, whoever wrote them, when there are too many."""

    def __init__(
        self,
        folder: Path,
        host: str,
        most_files: int,
        metrics: SchedulerMetrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``host``: in the files' names, for scheduler replicas that share a folder. Nothing is written before
        `begin`."""
        self._folder, self._host, self._most_files = folder, re.sub(r"[^A-Za-z0-9.-]", "_", host)[:64], most_files
        self._metrics, self._now = metrics, now
        self._waiting: deque[_Batch] = deque()
        self._given_bytes = self._taken_bytes = 0
        """Held by all batches so far: each is changed by one thread."""
        self._is_stopping = False
        self._is_asleep = False
        self._woken = threading.Condition()
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._number = 0
        self._reported = ""
        self.size_bytes = 0
        """Of the file that is written now, and of what waits for it as far as that was encoded."""
        self.has_failed = False
        """Whether what was handed over since the last `begin` was lost, in part or in full."""

    def begin(self, records: Iterable[Record]) -> bool:
        """The next file, with these records first. False: nothing was taken, for too much waits.

        Records are iterated over in the thread: a generator of them makes no one wait.
        """
        self._start_thread()
        if not self.has_room:
            return False
        self.has_failed, self.size_bytes = False, 0  # before the thread can say otherwise of this file
        return self._enqueue(_Batch(records, 0, True, 0))

    @property
    def has_room(self) -> bool:
        """Whether more can wait to be written."""
        return self._has_room_for(0)

    def _has_room_for(self, held_bytes: int) -> bool:
        waiting_bytes = self._given_bytes + held_bytes - self._taken_bytes
        return len(self._waiting) < MAX_WAITING and waiting_bytes <= MAX_WAITING_BYTES

    def add(self, records: Iterable[Record], decisions: int, held_bytes: int = 0) -> bool:
        """More records for the file, as `begin` takes them; ``held_bytes``: what they keep in memory until then. False:
        they are lost, for too much waits, or the file cannot be written."""
        return not self.has_failed and self._enqueue(_Batch(records, decisions, False, held_bytes))

    def stop(self) -> None:
        """Write what waits, for some seconds at most, and end."""
        with self._woken:
            self._is_stopping = True
            self._woken.notify()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)

    def _enqueue(self, batch: _Batch) -> bool:
        if not self._has_room_for(batch.held_bytes):
            return False
        self._given_bytes += batch.held_bytes
        self._waiting.append(batch)
        if self._is_asleep:  # it says so before it looks for the last time
            with self._woken:
                self._woken.notify()
        return True

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="decision log", daemon=True)
            self._thread.start()

    # --- in the thread

    def _run(self) -> None:
        looks = 0
        while self._waiting or not self._is_stopping:
            looks = 0 if self._waiting else looks + 1
            while self._waiting:
                batch = self._waiting.popleft()
                self._taken_bytes += batch.held_bytes
                self._take(batch)
            with self._woken:
                self._is_asleep = looks >= _MAX_IDLE_LOOKS
                if not self._waiting and not self._is_stopping:
                    self._woken.wait(None if self._is_asleep else _LOOK_PERIOD_S)
                self._is_asleep = False
        self._close()

    def _take(self, batch: _Batch) -> None:
        if self._file is None and not batch.begins:
            self._metrics.decisions_lost(batch.decisions)
            return
        try:
            if batch.begins:
                self._begin_file(batch.records)
            else:
                self._write(b"".join(map(encode, batch.records)))
        except (OSError, DecisionLogError) as error:  # a full disk, no folder, a record that is too long
            self._drop_batch(batch)
            self._report_error(error)
        except Exception:  # a fault of ours
            self._drop_batch(batch)
            log.exception("Failed to log a scheduling decision; scheduling continues")
        else:
            self._metrics.decisions_logged(batch.decisions)

    def _drop_batch(self, batch: _Batch) -> None:
        self.has_failed = True
        self._close()
        self._metrics.decisions_lost(batch.decisions)

    def _begin_file(self, records: Iterable[Record]) -> None:
        """Older files go once this one can be read; where it cannot be written, it goes."""
        self._close()
        self.has_failed, self.size_bytes = False, 0  # what was wrong with files before it
        self._number += 1
        path = self._folder / f"decisions-{self._now():%Y%m%dT%H%M%SZ}-{self._host}-{self._number:06}.log"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
        try:
            self._write(MAGIC + b"".join(map(encode, records)))
        except Exception:
            path.unlink(missing_ok=True)
            raise
        self._remove_oldest()

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        self.size_bytes += len(data)
        self._metrics.decision_log_grew(len(data))
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def _remove_oldest(self) -> None:
        """Names begin with the time, so that they sort by age."""
        found = sorted(self._folder.glob(_PATTERN))
        for path in found[: max(len(found) - self._most_files, 0)]:
            path.unlink(missing_ok=True)

    def _report_error(self, error: Exception) -> None:
        """Once for each thing that is wrong."""
        problem = str(error)
        if problem != self._reported:
            self._reported = problem
            log.warning(
                "Failed to write the decision log; scheduling continues",
                folder=str(self._folder),
                error=problem[:512],
            )
