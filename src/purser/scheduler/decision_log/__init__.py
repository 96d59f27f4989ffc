"""Room: the scheduler's decision log: each decision with its inputs, in files that `purser replay` reads.

- `DecisionLog` (``log``): told of each decision where it is made; `WrittenDecisionLog` takes notes of them, the base
  class none.
- `LogFiles` (``files``): a thread that makes records of the notes, and writes them into files of bounded size and
  number.

A decision never waits for the log, nor fails with it: what cannot be written is lost, and counted. A file stands by
itself, so that after a loss the next file begins, with the whole state.

Not here: what a record is, and how it is made of a fleet (`purser.core.decisions`).
"""

from purser.scheduler.decision_log.files import LogFiles
from purser.scheduler.decision_log.log import NO_LOG, DecisionLog, WrittenDecisionLog

__all__ = ["NO_LOG", "DecisionLog", "LogFiles", "WrittenDecisionLog"]
