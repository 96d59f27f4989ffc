"""From Kubernetes' objects to the kernel's values, and the other way round.

Here and nowhere else is known where in a Pod (``pods``) or Node (``nodes``) the kernel finds what it reads.
``snapshot`` reads a whole cluster, for commands that look once and go.

Not here: any decision, and any request but those of a snapshot. `purser.kube` knows no GPUs and imports none of this.
"""
