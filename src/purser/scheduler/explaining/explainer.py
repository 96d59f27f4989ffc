"""What is said of one pod, of one that does not exist yet, and of the pods of one workload."""

from collections.abc import Iterator, Sequence

import msgspec

from purser.adapters.dry_runs import CreationAnswer
from purser.adapters.manifests import ManifestPod
from purser.adapters.objects import ClusterObjects
from purser.adapters.workloads import ReadWorkload
from purser.core.decoding import brief
from purser.core.explaining.grouping import ReasonCount
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import PolicySettings
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.kube.objects import DEFAULT_SCHEDULER, Pod
from purser.kube.pods import is_terminal
from purser.scheduler.explaining.choosing import choice_of
from purser.scheduler.explaining.explanation import Explanation, UnknownPodError
from purser.scheduler.explaining.judging import Judgement, reason_counts, words_by_node
from purser.scheduler.explaining.known import KnownCluster
from purser.scheduler.explaining.last_message import last_message
from purser.scheduler.explaining.new_pods import NewPod, new_pod
from purser.scheduler.explaining.preempting import note_on_preemption
from purser.scheduler.explaining.starting import Obstacle, failure, obstacle
from purser.scheduler.explaining.suggesting import suggestions
from purser.scheduler.explaining.workloads import (
    WorkloadExplanation,
    pods_of,
    waiting_pods,
    workload_explanation,
)
from purser.scheduler.gates import gate_names
from purser.scheduler.reasons import SchedulerReason

_MAX_NAMED = 3
"""Namespaces in a message."""

_ADMISSION_UNKNOWN = "LimitRanges, other ResourceQuotas and other webhooks are not checked"
_MAX_ANSWER = 500
"""Characters."""
BEING_DELETED = "it is being deleted, so no scheduler places it"


def _notes_on_creation(made: NewPod, answer: CreationAnswer | None) -> Iterator[str]:
    """What the API server was not asked, or was asked about another pod."""
    if answer is not None and answer.exists:
        yield f"pod {made.pod.metadata.name} exists: the API server was asked about a second pod like it"
    if not made.refusal and answer is None:
        yield f"{_ADMISSION_UNKNOWN}; kubectl create --dry-run=server checks them"
    elif not made.refusal and answer is not None and answer.unknown:
        yield f"{_ADMISSION_UNKNOWN}: {brief(answer.unknown, _MAX_ANSWER)}"


class Explainer:
    """Answers for the pods of one cluster."""

    def __init__(
        self,
        objects: ClusterObjects,
        policy: PolicySettings = DEFAULT_POLICIES,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        self._workloads, self._warnings = objects.workloads, objects.warnings
        self._known_schedulers = ("", DEFAULT_SCHEDULER, scheduler_name)
        self._cluster = KnownCluster(objects, policy, scheduler_name)

    def explain(self, namespace: str, name: str) -> Explanation:
        """Why a pod waits, or where it is. Raises `UnknownPodError`."""
        pod = self._cluster.pod(namespace, name)
        if pod is None:
            raise UnknownPodError(f"namespace {namespace} has no pod {name}{self._other_namespaces_text(name)}")
        return self._explained(pod)

    def _other_namespaces_text(self, name: str) -> str:
        """Where there are pods of this name."""
        there = sorted({each.metadata.namespace for each in self._cluster.pods() if each.metadata.name == name})
        more = f" and {len(there) - _MAX_NAMED} more" if len(there) > _MAX_NAMED else ""
        lead = "but namespace" if len(there) == 1 else "but namespaces"
        verb = "does" if len(there) == 1 else "do"
        return f", {lead} {', '.join(map(brief, there[:_MAX_NAMED]))}{more} {verb}" if there else ""

    def explain_workload(
        self, kind: str, namespace: str, name: str, read: ReadWorkload | None = None
    ) -> WorkloadExplanation:
        """How a workload's pods are, and what is said of the one that waits longest, or else of one that does not run.
        ``read``: the workload, where it
        is not among the objects. Raises `UnknownPodError` where there is neither the workload nor a pod of it."""
        there = (each for each in self._workloads.get(kind, ()) if each.metadata.name == name)
        of_file = next((each for each in there if each.metadata.namespace == namespace), None)
        read = read or ReadWorkload(of_file)
        pods = pods_of(kind, namespace, name, self._cluster.pods())
        if read.found is None and not pods:
            raise UnknownPodError(
                " ".join((f"namespace {namespace} has no {kind} {name} and no pods owned by it", *read.problems))
            )
        of_interest = next(iter(waiting_pods(pods)), None) or self._find_not_running(pods)
        first = None if of_interest is None else self._explained(of_interest)
        notes = (*read.problems, *self._cluster.notes)
        return workload_explanation(kind, namespace, name, read, pods, first, notes)

    def explain_new(self, asked: ManifestPod, namespace: str, answer: CreationAnswer | None = None) -> Explanation:
        """What would happen to a pod if it was created now. ``answer``: what the API server says of it, if it was
        asked. Raises `purser.adapters.manifests.ManifestError` for a pod that cannot be read."""
        made = new_pod(self._cluster, asked, asked.namespace or namespace, answer)
        found = self._explained(made.pod, made.refusal)
        notes = (*(f"warning for the pod's author: {each}" for each in made.warnings), *found.notes)
        return msgspec.structs.replace(found, state="New", notes=(*notes, *_notes_on_creation(made, answer)))

    def _obstacle(self, pod: Pod) -> Obstacle | None:
        warnings = self._warnings.get(pod.metadata.uid, ())
        return obstacle(pod, self._cluster.node_object(pod.spec.node_name), warnings)

    def _find_not_running(self, pods: Sequence[Pod]) -> Pod | None:
        """The first of a workload's pods that is on a node and does not run; where it has none there, the last that
        failed."""
        placed = [pod for pod in pods if pod.spec.node_name and not is_terminal(pod)]
        if placed:
            return next((pod for pod in placed if self._obstacle(pod) is not None), None)
        return next((pod for pod in reversed(pods) if failure(pod) is not None), None)

    def _explained(self, pod: Pod, refusal: str = "") -> Explanation:
        cluster, spec, meta = self._cluster, pod.spec, pod.metadata
        node, nodes = spec.node_name, len(cluster.nodes)
        head = Explanation(meta.namespace, meta.name, spec.scheduler_name, "Waiting", node, nodes)
        if refusal:
            return msgspec.structs.replace(head, objection=refusal, notes=cluster.notes)
        if is_terminal(pod):
            said = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
            return msgspec.structs.replace(
                head, state="Ended", objection=brief(said), obstacle=failure(pod), notes=cluster.notes
            )
        if spec.node_name:
            choice, held_by = choice_of(cluster, pod), self._obstacle(pod)
            return msgspec.structs.replace(head, state="Placed", choice=choice, obstacle=held_by, notes=cluster.notes)
        if meta.deletion_timestamp:
            return msgspec.structs.replace(head, objection=BEING_DELETED, notes=cluster.notes)
        if spec.scheduling_gates:
            return self._explained_gated(pod, head)
        found = cluster.judge(pod)
        preempts = () if found.fits or found.objection else tuple(self._notes_on_preemption(pod, found))
        return msgspec.structs.replace(
            head,
            fits=found.fits,
            objection=found.objection,
            last_message=last_message(pod),
            reasons=reason_counts(found, cluster.fleet, cluster.policy),
            further_reasons=() if found.fits or found.objection else self._further_reasons(pod, found),
            by_node=words_by_node(found),
            suggestions=() if found.fits or found.objection else tuple(suggestions(cluster, pod, found)),
            notes=(*preempts, *self._notes_on_waiting(pod), *cluster.notes),
        )

    def _further_reasons(self, pod: Pod, found: Judgement) -> tuple[ReasonCount, ...]:
        if not found.rejections:
            return ()
        return reason_counts(self._cluster.judge_further(pod, found), self._cluster.fleet, self._cluster.policy)

    def _notes_on_preemption(self, pod: Pod, found: Judgement) -> Iterator[str]:
        if pod.spec.preemption_policy != "Never" and pod.spec.scheduler_name in self._known_schedulers:
            note = note_on_preemption(self._cluster, pod, found)
            if note:
                yield note

    def _notes_on_waiting(self, pod: Pod) -> Iterator[str]:
        """What the verdict leaves out: what the running scheduler has warned of, and what is not looked at."""
        warned = {each.reason: each for each in self._warnings.get(pod.metadata.uid, ())}
        for each in (warned[reason] for reason in SchedulerReason if reason in warned):
            yield f"event {each.reason} from {brief(each.seen_at)}: {brief(each.message)}"
        scheduler = pod.spec.scheduler_name
        if scheduler not in self._known_schedulers:
            yield (
                f"scheduler {brief(scheduler)} places the pod. Purser does not know the rules of that scheduler, such "
                "as queues and pod groups"
            )
        if note := self._cluster.note(pod):
            yield note

    def _explained_gated(self, pod: Pod, head: Explanation) -> Explanation:
        """Whoever set the gates decides when it goes on; what would hold it then is said beside them."""
        ungated = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=None))
        gates, rest = self._cluster.judge(pod), self._cluster.judge(ungated)
        also = f"; without them, it would still wait: {rest.objection}" if rest.objection else ""
        return msgspec.structs.replace(
            head,
            objection=f"{gates.objection}{also}",
            gates=gate_names(pod),
            fits_without_gates=rest.fits,
            last_message=last_message(pod),
            reasons=reason_counts(rest, self._cluster.fleet, self._cluster.policy),
            by_node=words_by_node(rest),
            notes=(*self._notes_on_waiting(pod), *self._cluster.notes),
        )
