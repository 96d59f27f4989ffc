"""Why a pod waits: of a cluster that was read once, for `purser why` and `purser top`; and in the running scheduler.

- ``explainer``: what is said of a pod (``explanation``), and of the pods of a Deployment or the like (``workloads``).
  ``new_pods``: a pod of a manifest, as it would be created.
- ``starting``: what keeps a pod on its node from running there, and why one failed.
- ``choosing``: of one that is on a node, what that node was worth against the others.
- ``known``: the cluster, as it is and as it would be, and the verdict of every node on a pod: kube-scheduler's filters
  (``filtering``), then Purser's own decision, with the live scheduler's cache and decision. Signatures of grants are
  not checked. ``judging``: a verdict, and how it is said. ``placed_pods``: what pods take of their nodes; ``claims``:
  their volumes; ``last_message``: what the pod's scheduler said of it.
- ``suggesting``: the smallest changes by which the pod would fit, each judged on the changed cluster. ``changes``: the
  nouns; ``trial``: how one is tried; a module for each kind: ``amounts``, ``pod_changes``, ``quota_changes``,
  ``node_changes``, ``leaving``. ``edits``: changed pods; ``ending``: which pods would have to end; ``searching``: how
  the largest and the fewest are found. ``preempting``: whether pods of lower priority are in the way.
- ``logged``: the same of a scheduler's decision log.
- ``advising``: the running scheduler tells pods that wait what change of their own would make them fit; ``live_judge``:
  its verdict on a changed pod. ``asking``: the same for one pod, when somebody asks the read API.
- ``overview``: the whole cluster as the state document, and of all pods that wait the reasons.

Not here: the filters themselves and how reasons are counted (`purser.core.explaining`).
"""

from purser.scheduler.explaining.advising import PodAdvisor
from purser.scheduler.explaining.asking import NoTurnError, PodSearch, SearchedPod
from purser.scheduler.explaining.changes import ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.choosing import ChosenNode, NodeScore
from purser.scheduler.explaining.explainer import Explainer
from purser.scheduler.explaining.explanation import Explanation, UnknownPodError
from purser.scheduler.explaining.last_message import with_last_message
from purser.scheduler.explaining.logged import LogFile, explain_from_log
from purser.scheduler.explaining.overview import Overview
from purser.scheduler.explaining.starting import Obstacle
from purser.scheduler.explaining.workloads import WorkloadExplanation

__all__ = [
    "ChangeKind",
    "ChosenNode",
    "Explainer",
    "Explanation",
    "LogFile",
    "NoTurnError",
    "NodeScore",
    "Obstacle",
    "Overview",
    "PodAdvisor",
    "PodSearch",
    "SearchedPod",
    "SuggestedChange",
    "Suggestion",
    "UnknownPodError",
    "WorkloadExplanation",
    "explain_from_log",
    "with_last_message",
]
