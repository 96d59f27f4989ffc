"""What is done about it: the actions of a round, written to the API or shown.

- ``writer``: the protocol, and what came of an action.
- ``kube``: writes; ``dry``: says what it would write, in diffs of ``diff``.
- ``perform``: does all actions of a round, in order.

Not here: which actions (``kernel``).
"""

from purser.operator.acting.dry import DryWriter
from purser.operator.acting.kube import KubeWriter
from purser.operator.acting.perform import perform
from purser.operator.acting.writer import FailedAction, Result, Writer

__all__ = ["DryWriter", "FailedAction", "KubeWriter", "Result", "Writer", "perform"]
