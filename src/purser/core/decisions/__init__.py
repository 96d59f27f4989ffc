"""The decision log: each decision with its inputs, as records that can be decided again, bit for bit.

A file holds one kind of log, and stands by itself: it begins with all that its decisions depend on, then come the
changes of that and the decisions, in the order in which they were made. `records` has what is written, `framing` how it
becomes bytes and is read back within limits, `replaying` follows a file of either kind.

Of a simulation: `simulation` makes its decisions again. Of a scheduler: `recording` takes `notes` of its fleet and
decisions while a request waits, `transcript` makes records of them later (`naming`: names or hashes, `digest`: many
scores as one number), `scheduling` makes the decisions again. To decide again is to call what decided: nothing here
knows how a node is chosen.

Not here: files, their rotation, threads (`purser.scheduler.decision_log`, `purser.simulator.decision_log`).
"""

from purser.core.decisions.framing import DecisionLogError, Reader, encode
from purser.core.decisions.records import DecisionDifference, Outcome
from purser.core.decisions.replaying import Replayer

__all__ = ["DecisionDifference", "DecisionLogError", "Outcome", "Reader", "Replayer", "encode"]
