"""What the scheduler tells its decision log, and when a file begins."""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.notes import DecisionInputs, Note, bytes_held
from purser.core.decisions.recording import Recording
from purser.core.decisions.transcript import Transcript
from purser.core.placement import Evaluation, Evaluator, Placement, Refusal
from purser.scheduler.cache import ClusterCache
from purser.scheduler.decision_log.files import LogFiles
from purser.scheduler.metrics import SchedulerMetrics

RETRY_PERIOD_S = 30.0
"""Between two tries to write, while it fails."""

_MAX_GROWTH_FACTOR = 2
"""A file grows until the next turn finds it to be full; to so many times its size at the most."""

log = structlog.get_logger("purser.scheduler")


class DecisionLog:
    """Of a scheduler that keeps none."""

    def judged(self, asked: DecisionInputs, found: Evaluation, verb: str) -> None:
        """A pod was judged on nodes just now; the fleet is as it was then."""

    def placed(self, asked: DecisionInputs, node: str, found: Placement | Refusal, *, is_early: bool) -> None:
        """A pod was given devices of a node just now, and they are not in the ledger yet; or it does not fit."""

    def bound(self, uid: str) -> None:
        """The API server has a pod's Binding."""

    def gone(self, uid: str) -> None:
        """A pod that waited does so no more, and was not bound."""

    def released(self) -> None:
        """A pod has ended just now: the log has when."""

    def turn(self, is_active: bool) -> None:
        """Every few seconds: ``is_active``: whether this replica places pods."""

    def stop(self) -> None:
        """Write what is left."""


NO_LOG = DecisionLog()


class _File(NamedTuple):
    """One file: notes are taken while decisions wait, and written out in the thread of the files."""

    recording: Recording
    transcript: Transcript


class WrittenDecisionLog(DecisionLog):
    """Of a scheduler that keeps one. To be called from one thread."""

    def __init__(
        self,
        cache: ClusterCache,
        evaluator: Evaluator,
        files: LogFiles,
        metrics: SchedulerMetrics,
        file_bytes: int,
        one_in: int,
        names_key: Callable[[], bytes | None],
    ) -> None:
        """``one_in``: of so many pods the decisions on one are logged. ``names_key``: of the names' hashes, asked anew
        for each file; None: names stand for themselves."""
        self._cache, self._evaluator, self._files, self._metrics = cache, evaluator, files, metrics
        self._file_bytes, self._one_in, self._names_key = file_bytes, one_in, names_key
        self._file: _File | None = None
        self._retry_at = 0.0
        self._was_refused = False
        """Whether the last file that was due did not begin."""
        evaluator.planner.on_plan = self._record_plan

    def judged(self, asked: DecisionInputs, found: Evaluation, verb: str) -> None:
        """See `DecisionLog`."""
        if self._is_sampled(asked.request.uid):
            self._add(lambda recording, at: recording.judged(at, asked, found, verb), 1)

    def placed(self, asked: DecisionInputs, node: str, found: Placement | Refusal, *, is_early: bool) -> None:
        """See `DecisionLog`."""
        if self._is_sampled(asked.request.uid):
            self._add(lambda recording, at: recording.placed(at, asked, node, found, is_early=is_early), 1)

    def bound(self, uid: str) -> None:
        """See `DecisionLog`."""
        self._add(lambda recording, at: recording.bound(at, uid))

    def gone(self, uid: str) -> None:
        """See `DecisionLog`."""
        if self._is_sampled(uid):
            self._add(lambda recording, at: recording.gone(at, uid))

    def released(self) -> None:
        """See `DecisionLog`."""
        self._add(lambda recording, at: recording.changes(at))

    def turn(self, is_active: bool) -> None:
        """Begin a file where one is due, else write what changed, so that the log has it in time."""
        if not is_active:
            self._file = None
            return
        if self._file is not None and not self._files.has_failed and self._files.size_bytes < self._file_bytes:
            self._add(lambda recording, at: recording.changes(at))
        elif not self._is_failing or self._cache.clock.monotonic() >= self._retry_at:
            self._begin()

    def stop(self) -> None:
        """See `DecisionLog`."""
        self._file = None
        self._files.stop()

    @property
    def _is_failing(self) -> bool:
        return self._files.has_failed or self._was_refused

    def _begin(self) -> None:
        self._retry_at = self._cache.clock.monotonic() + RETRY_PERIOD_S
        self._file, self._was_refused = None, True
        if not self._files.has_room:  # before all nodes are looked at for nothing
            return
        key = self._names_key()
        recording = Recording(self._cache.fleet, self._evaluator, self._cache.arrivals.mix)
        notes = self._make_note(lambda: recording.start(self._now(), self._one_in, is_anonymous=key is not None))
        transcript = Transcript(LoggedNames(key))
        if notes is not None and self._files.begin(transcript.records(notes)):
            self._file, self._was_refused = _File(recording, transcript), False
            self._evaluator.refresh()

    def _record_plan(self) -> None:
        self._add(lambda recording, at: recording.planned(at))

    def _add(self, note: Callable[[Recording, float], Sequence[Note]], decisions: int = 0) -> None:
        """Note what is now; where it is not written, nothing is until the next file begins."""
        file = self._file
        if file is None:
            self._metrics.decisions_lost(decisions)
            return
        notes = self._make_note(lambda: note(file.recording, self._now()))
        too_long = self._files.size_bytes > _MAX_GROWTH_FACTOR * self._file_bytes
        if notes is None or too_long or (notes and not self._enqueue(file, notes, decisions)):
            self._file = None
            self._metrics.decisions_lost(decisions)

    def _enqueue(self, file: _File, notes: Sequence[Note], decisions: int) -> bool:
        return self._files.add(file.transcript.records(notes), decisions, sum(map(bytes_held, notes)))

    def _make_note(self, note: Callable[[], Sequence[Note]]) -> Sequence[Note] | None:
        """None where a fault of ours makes none: no decision fails for it."""
        try:
            return note()
        except Exception:
            log.exception("Failed to log a scheduling decision; scheduling continues")
            return None

    def _is_sampled(self, uid: str) -> bool:
        return self._one_in == 1 or zlib.crc32(uid.encode()) % self._one_in == 0

    def _now(self) -> float:
        return self._cache.clock.now().timestamp()
