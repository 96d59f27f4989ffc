"""What is done about it: the actions of a round, written to the API or shown.

- ``writer``: the protocol, what came of an action, and the loop over all actions of a round, in order.
- ``kube``: writes; ``dry``: shows what it would write, as diffs.

Not here: which actions (``deciding``).
"""

from purser.operator.acting.dry import DryWriter
from purser.operator.acting.kube import KubeWriter
from purser.operator.acting.writer import FailedAction, Result, Writer, perform

__all__ = ["DryWriter", "FailedAction", "KubeWriter", "Result", "Writer", "perform"]
