"""What there is: informers on everything that a round decides from, and the `Snapshot` of it.

- ``kinds``: where the API serves what the operator asks for, and what a server has of it.
- ``objects``, ``views``: what is read of nodes, pods and budgets, and the nouns of the kernel made of it.
- ``workloads``: pods of nodes that are to be emptied or to lose their driver, followed only then.
- ``optional``: kinds whose definitions come and go.
- ``expectations``: a round begins when the effects of the last one's writes have been seen.
- ``nvidia``: what another operator was told, for a command that takes it over.
- ``snapshot``: the snapshot of a round, from what informers know.
- ``observer``: the `Observer` that holds all this together.

Not here: what to do about it (``kernel``), and any write (``acting``).
"""

from purser.operator.observing.observer import Observer

__all__ = ["Observer"]
