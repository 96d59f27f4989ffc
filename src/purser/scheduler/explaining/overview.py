"""The whole of a cluster that was read once: the state document, with the reason of each pod that waits.

A reason costs a decision over all nodes, so each is made when it is asked for, and once for pods that are alike.
"""

from collections.abc import Collection, Iterable
from time import monotonic

import msgspec

from purser.adapters.objects import ClusterObjects
from purser.core.explaining.reasons import FilterReason
from purser.core.fleet import NodeState
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import PolicySettings
from purser.core.policy.settings import DEFAULT_POLICIES
from purser.core.state import (
    ClusterState,
    NodeDetails,
    StateAsk,
    StateNode,
    StateReason,
    StateWaiting,
    node_details,
    state_ask,
    state_grant,
    state_node,
)
from purser.core.wording import counted
from purser.kube.nodes import readiness
from purser.kube.objects import Pod
from purser.scheduler.explaining.explainer import Explainer
from purser.scheduler.explaining.judging import Judgement, reason_counts
from purser.scheduler.explaining.last_message import last_advice, last_message, with_last_message
from purser.scheduler.pending import peak_gpu_count
from purser.scheduler.reasons import PendingReason

MAX_JUDGED = 500
"""Kinds of waiting pods whose reasons are found: at 1 000 nodes some seconds of work."""


_EXCLUSIONS = frozenset(
    {FilterReason.UNSCHEDULABLE, FilterReason.TAINT, FilterReason.SELECTOR, FilterReason.AFFINITY, FilterReason.VOLUME}
)
"""Nodes that are not meant for a pod say nothing of why it waits while there are others. Purser's scheduler is not even
asked about them."""


class Overview(Explainer):
    """Answers for all of a cluster's pods at once, and for each as `Explainer` does. For one thread at a time."""

    def __init__(
        self,
        objects: ClusterObjects,
        policy: PolicySettings = DEFAULT_POLICIES,
        scheduler_name: str = SCHEDULER_NAME,
    ) -> None:
        super().__init__(objects, policy, scheduler_name)
        self._waiting = {pod.metadata.uid: pod for pod in self._cluster.waiting()}
        self._kinds = {uid: _kind(pod) for uid, pod in self._waiting.items()}
        self._asks: dict[bytes, tuple[int, StateAsk | None]] = {}
        """By `_kind` of pod: how many GPUs it asks for, 0: that cannot be read; and what of each."""
        self._known: dict[bytes, StateWaiting] = {}
        """By `_kind` of pod: the reason of one that stands for all."""

    def state(self, sequence: int = 0) -> ClusterState:
        """The document. Pods that wait have no reasons yet: `judged` finds them."""
        fleet = self._cluster.fleet
        grants = sorted(fleet.ledger.grants(), key=lambda each: (each.namespace, each.pod, each.pod_uid))
        return ClusterState(
            instance="",
            sequence=sequence,
            replica=None,
            nodes=tuple(self._node(each) for each in fleet),
            grants=tuple(
                state_grant(each, state, fleet.node(each.node), *self._times(each.pod_uid))
                for each in grants
                if (state := fleet.ledger.state(each.pod_uid)) is not None
            ),
            waiting=tuple(self._entry(pod) for pod in self._waiting.values()),
            notes=self._cluster.notes,
            quotas=tuple(self._cluster.state_quotas()),
        )

    def judged(self, uids: Iterable[str], *, for_s: float) -> dict[str, StateWaiting]:
        """By uid: pods that wait, with their reasons, as many as are found in so many seconds, one at least. Of more
        than `MAX_JUDGED` kinds of pods some have none."""
        found: dict[str, StateWaiting] = {}
        until = monotonic() + for_s
        for uid in uids:
            pod = self._waiting.get(uid)
            if pod is None:
                continue
            kind = self._kinds[uid]
            if kind not in self._known:
                if len(self._known) >= MAX_JUDGED or (found and monotonic() > until):
                    continue
                self._known[kind] = self._judge(pod)
            reason = self._known[kind]
            found[uid] = _with_reason(pod, self._entry(pod), reason)
        return found

    def complete(self) -> ClusterState:
        """The document with the reasons, and a note on those that are left out."""
        state = self.state()
        found = self.judged((each.uid for each in state.waiting), for_s=float("inf"))
        left_out = len(state.waiting) - len(found)
        waiting = tuple(found.get(each.uid, each) for each in state.waiting)
        note = f"reasons are not shown for {counted(left_out, 'waiting pod')}: use purser why POD to see one"
        notes = (*state.notes, note) if left_out else state.notes
        return msgspec.structs.replace(state, waiting=waiting, notes=notes)

    def node_details(self, name: str) -> NodeDetails | None:
        """The document on one node; None: there is no such node with GPUs."""
        fleet = self._cluster.fleet
        node = fleet.node(name)
        return None if node is None else node_details(node, fleet.kubelet_report(name))

    def _node(self, state: NodeState) -> StateNode:
        node = self._cluster.node_object(state.name)
        if node is None:
            return state_node(state, cordoned=False)
        return state_node(
            state,
            cordoned=node.spec.unschedulable,
            ready=readiness(node),
            labels=node.metadata.labels,
            annotations=node.metadata.annotations,
            allocatable=node.status.allocatable,
        )

    def _times(self, uid: str) -> tuple[str, str]:
        pod = self._cluster.placed.pod(uid)
        return ("", "") if pod is None else (pod.metadata.creation_timestamp, pod.status.start_time)

    def _entry(self, pod: Pod) -> StateWaiting:
        meta, spec = pod.metadata, pod.spec
        kind = self._kinds[meta.uid]
        if kind not in self._asks:
            request = self._cluster.request(pod)
            self._asks[kind] = (0, None) if request is None else (peak_gpu_count(request), state_ask(request))
        gpus, asks = self._asks[kind]
        return StateWaiting(
            namespace=meta.namespace,
            pod=meta.name,
            uid=meta.uid,
            since=pod.metadata.creation_timestamp,
            scheduler=spec.scheduler_name,
            priority=spec.priority,
            gpus=gpus,
            reason="",
            message="",
            suggestion=last_advice(pod),
            asks=asks,
        )

    def _judge(self, pod: Pod) -> StateWaiting:
        found = self._cluster.judge(pod)
        reasons = tuple(
            StateReason(each.by, each.reason, each.nodes, each.gpus, each.text)
            for each in reason_counts(found, self._cluster.fleet, self._cluster.policy)
        )
        word, message = _first(pod, found, reasons)
        return msgspec.structs.replace(self._entry(pod), reason=word, message=message, reasons=reasons)


def _first(pod: Pod, found: Judgement, reasons: Collection[StateReason]) -> tuple[str, str]:
    """The word and the sentence that stand for all."""
    if found.objection:
        return (str(PendingReason.SCHEDULING_GATED) if pod.spec.scheduling_gates else ""), found.objection
    if found.fits:
        examples = ", ".join(found.fits[:2])
        return str(PendingReason.KUBE_SCHEDULER), f"fits on {counted(len(found.fits), 'node')} now ({examples})"
    first = next((each for each in reasons if each.reason not in _EXCLUSIONS), next(iter(reasons), None))
    return ("", "there are no nodes") if first is None else (first.reason, first.text)


def _with_reason(pod: Pod, entry: StateWaiting, judged: StateWaiting) -> StateWaiting:
    """A pod of a kind that was judged. What its scheduler advised is of the past where it fits by now."""
    advice = "" if judged.reason == PendingReason.KUBE_SCHEDULER else entry.suggestion
    return msgspec.structs.replace(
        entry, reason=judged.reason, message=_message(pod, judged), reasons=judged.reasons, suggestion=advice
    )


def _message(pod: Pod, judged: StateWaiting) -> str:
    """The sentence on one pod of a kind: what its scheduler says of it differs among pods that are alike."""
    if judged.reason != PendingReason.KUBE_SCHEDULER:
        return judged.message
    return with_last_message(judged.message, pod.spec.scheduler_name, last_message(pod))


def _kind(pod: Pod) -> bytes:
    """Equal for pods of which all nodes think alike."""
    meta = pod.metadata
    parts = (meta.namespace, meta.labels, meta.annotations, pod.spec, pod.status.nominated_node_name)
    return msgspec.json.encode(parts)
