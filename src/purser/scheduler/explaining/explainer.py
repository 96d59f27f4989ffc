"""What is said of one pod."""

import msgspec

from purser.adapters.objects import ClusterObjects
from purser.core.decoding import brief
from purser.core.explaining.grouping import ReasonCount
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import PolicySettings
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.kube.pods import is_terminal
from purser.scheduler.explaining.changes import Suggestion
from purser.scheduler.explaining.choosing import ChosenNode, choice_of
from purser.scheduler.explaining.judging import reason_counts, words_by_node
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.explaining.last_message import last_message
from purser.scheduler.explaining.suggesting import suggestions


class Explanation(msgspec.Struct, frozen=True):
    """Why a pod waits, or where it is."""

    namespace: str
    pod: str
    scheduler: str
    state: str
    """``Waiting``, ``Placed`` or ``Ended``."""
    node: str = ""
    nodes: int = 0
    """How many there are."""
    fits: tuple[str, ...] = ()
    """The nodes that would take it now; of a pod that waits."""
    objection: str = ""
    """Why it is placed nowhere, whatever the nodes; of a pod that has ended, its last message."""
    last_message: str = ""
    """What its scheduler said last of a pod that waits, by the pod's condition PodScheduled."""
    reasons: tuple[ReasonCount, ...] = ()
    by_node: dict[str, str] = {}
    """Of each node that does not take it, why."""
    suggestions: tuple[Suggestion, ...] = ()
    """Any one of them would make it fit: each was judged on the changed cluster."""
    choice: ChosenNode | None = None
    """Of a pod that is on a node."""
    at: str = ""
    """Of a decision log: when it was decided, in RFC 3339. All else is as it was then."""
    notes: tuple[str, ...] = ()
    """What of the cluster could not be read."""


class UnknownPodError(ValueError):
    """There is no such pod; the message says so."""


class Explainer:
    """Answers for the pods of one cluster."""

    def __init__(
        self,
        objects: ClusterObjects,
        policy: PolicySettings = DEFAULT_POLICIES,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        self._cluster = KnownCluster(objects, policy, scheduler_name)

    def explain(self, namespace: str, name: str) -> Explanation:
        """Why a pod waits, or where it is. Raises `UnknownPodError`."""
        cluster, pod = self._cluster, self._cluster.pod(namespace, name)
        if pod is None:
            raise UnknownPodError(f"namespace {namespace} has no pod {name}")
        spec = pod.spec
        head = Explanation(namespace, name, spec.scheduler_name, "Waiting", spec.node_name, len(cluster.nodes))
        if is_terminal(pod):
            return msgspec.structs.replace(
                head, state="Ended", objection=brief(pod.status.message), notes=cluster.notes
            )
        if spec.node_name:
            return msgspec.structs.replace(head, state="Placed", choice=choice_of(cluster, pod), notes=cluster.notes)
        found = cluster.judge(pod)
        return msgspec.structs.replace(
            head,
            fits=found.fits,
            objection=found.objection,
            last_message=last_message(pod),
            reasons=reason_counts(found, cluster.fleet, cluster.policy),
            by_node=words_by_node(found),
            suggestions=() if found.fits or found.objection else tuple(suggestions(cluster, pod, found)),
            notes=cluster.notes,
        )
