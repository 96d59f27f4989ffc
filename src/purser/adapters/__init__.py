"""From Kubernetes' objects to the kernel's values, and the other way round.

Here and nowhere else is known where in a Pod (``pods``) or Node (``nodes``) the kernel finds what it reads.
``snapshot`` reads a whole cluster, for commands that look once and go, ``occupancy`` with who may be evicted of it, and
``eligibility`` asks kube-scheduler's own rules about a pod and a node again; ``quotas`` are namespaces' limits.
``cordoning`` and ``applying`` are what commands write: cordons of GPUs, and a plan carried out, which looks at what
``replacements`` have become.

Not here: any decision, and any other write. `purser.kube` knows no GPUs and imports none of this.
"""
