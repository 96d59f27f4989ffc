"""What there is: informers on everything that a round decides from, and the `Snapshot` of it.

- ``kinds``: where the API serves what the operator owns, and which version of it an old server has.
- ``objects``, ``views``: what is read of nodes, pods and budgets, and the nouns of the kernel made of it.
- ``workloads``: pods of nodes that are to be emptied, asked for only then.
- ``expectations``: a round begins when the effects of the last one's writes have been seen.
- ``snapshot``: the `Observer` that holds all this together.

Not here: what to do about it (``kernel``), and any write (``acting``).
"""

from purser.operator.observing.snapshot import Observer

__all__ = ["Observer"]
