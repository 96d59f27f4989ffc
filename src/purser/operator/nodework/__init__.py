"""Work on one node that others have to make room for, whoever does it: what driver upgrades and MIG changes share.

Both take a node through a few steps, each one write; both have pods leave by eviction before they touch a GPU; and both
keep to one bound of unavailable nodes. That pods are asked by the same rules, and counted against the same disruption
budgets, is why it stands here once.

- ``work``: what both decide from, and how many nodes may be unavailable.
- ``steps``: what a node's machine does in one round, and all nodes' steps together as the round's moves.
- ``evicting``: which pods have to leave, and which of them may be asked to.
- ``disruption``: what PodDisruptionBudgets allow within one round.
- ``cordons``: whose cordon a node has, and who may lift it.
- ``clocks``: times that stand on nodes, and deadlines counted from them.

Not here: the machines (``upgrade``, ``mig``), which import nothing of one another, and writing of any kind.
"""
