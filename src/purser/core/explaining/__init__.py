"""Why a pod is where it is, or why it waits: kube-scheduler's filters asked again, and reasons counted.

- ``filters``: the first of kube-scheduler's filters that keeps a pod from a node; ``reasons``: its words.
- ``neighbours``: the filters that look at other pods in the same place.
- ``grouping``: equal reasons of many nodes as one line, Purser's own (`purser.core.placement.clauses`) beside them.

Not here: what Purser itself says of a node, which is the decision (`purser.core.placement`), nor where the objects come
from (`purser.scheduler.explaining`).
"""
