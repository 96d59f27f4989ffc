"""What there is: informers on everything that a round decides from, and the `Snapshot` of it.

- ``kinds``: where the API serves what the operator asks for, what a server has of it, and kinds that come and go.
- ``views``: the operator's nouns made of nodes, pods and budgets, and the snapshot made of those.
- ``workloads``: pods of nodes that are to be emptied or to lose their driver, followed only then.
- ``expectations``: a round begins when the effects of the last one's writes have been seen.
- ``observer``: the `Observer` that holds all this together.

Not here: what to do about it (``deciding``), and any write (``writing``).
"""

from purser.operator.observing.observer import Observer

__all__ = ["Observer"]
