"""Why a pod waited, or was placed where it was: of a scheduler's decision log, without a cluster.

- ``finding``: which decision of a file is the last one on a pod, and what the file has where there is none.
- ``moment``: the state at that decision, and what the decision would have been in another one.
- ``request_changes``, ``fleet_changes``: the smallest changes by which the pod would have fitted; ``offering``: how one
  is said.
- ``log_explainer``: what is said of a pod.

A log has what Purser decides from: GPUs, grants, kubelets' reports, what quotas leave, and what pods ask for. It has no
labels, taints, affinity and words of pods, so that kube-scheduler's own filters are not among the reasons.

Not here: how a log is read and followed (`purser.core.decisions`).
"""

from purser.scheduler.explaining.logged.log_explainer import LogFile, explain_from_log

__all__ = ["LogFile", "explain_from_log"]
