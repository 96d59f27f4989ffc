"""One pod that waits, what refused it, and how a change is tried: by the decision that refused the pod."""

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from purser.core.explaining.reasons import FilterReason
from purser.core.placement import Reason
from purser.core.wording import natural_sort_key
from purser.kube.objects import Node, Pod
from purser.scheduler.explaining.changes import EXAMPLES, ChangeKind, SuggestedChange, Suggestion
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.known import KnownCluster

ObjectT = TypeVar("ObjectT")


class ChangedNode(NamedTuple, Generic[ObjectT]):
    """A node, and what was changed of it."""

    what: ObjectT
    node: Node


class PodJudge(Protocol):
    """Who decides on a pod, as it is written or as it could be."""

    def judge(self, pod: Pod) -> Judgement:
        """The verdict of every node on it."""
        ...

    @property
    def largest_gpu_mib(self) -> int:
        """The memory of the largest GPU that there is; 0: there is none."""
        ...


class PodTrial:
    """What of the pod itself could be otherwise is tried here."""

    def __init__(self, judge: PodJudge, pod: Pod, refused: Judgement) -> None:
        self.judge = judge
        self.pod = pod
        self.refused = refused
        self.short = {each.about for each in refused.rejections.values() if each.reason is FilterReason.RESOURCES}
        """Resources of which kube-scheduler finds too little somewhere."""
        self.reasons = {reason for each in refused.refusals.values() for reason, _ in each.counts}
        """Purser's, on all nodes together."""

    def fits(self, pod: Pod) -> tuple[str, ...]:
        """The nodes that would take a pod."""
        return self.judge.judge(pod).fits

    def suggest_if_it_fits(
        self, kind: ChangeKind, text: str, change: SuggestedChange, pod: Pod
    ) -> Iterator[Suggestion]:
        """The suggestion, where some node takes the pod."""
        fits = self.fits(pod)
        if fits:
            examples = tuple(sorted(fits, key=natural_sort_key)[:EXAMPLES])
            yield Suggestion(kind, text, change, len(fits), examples)


class Trial(PodTrial):
    """What would help one pod is tried here, of a cluster of which all can be otherwise."""

    def __init__(self, cluster: KnownCluster, pod: Pod, refused: Judgement) -> None:
        super().__init__(cluster, pod, refused)
        self.cluster = cluster

    def with_node(self, kind: ChangeKind, text: str, change: SuggestedChange, node: Node) -> Iterator[Suggestion]:
        """The suggestion, where some node takes the pod once one of them is changed."""
        with self.cluster.with_nodes([node]):
            yield from self.suggest_if_it_fits(kind, text, change, self.pod)

    def refused_for(self, reason: Reason) -> list[str]:
        """The nodes that Purser refuses for a reason, among others."""
        return [name for name, each in self.refused.refusals.items() if any(r is reason for r, _ in each.counts)]

    def helpful_changes(self, ways: Iterable[ChangedNode[ObjectT] | None]) -> Iterator[ChangedNode[ObjectT]]:
        """Those changed nodes, by name, which take the pod where they alone are changed. Of each node one way."""
        named = {way.node.metadata.name: way for way in ways if way is not None}
        with self.cluster.with_nodes([way.node for way in named.values()]):
            found = set(self.fits(self.pod)) & named.keys()
        for name in sorted(found, key=natural_sort_key):
            with self.cluster.with_nodes([named[name].node]):  # for spreading, others' taints may count
                is_enough = bool(self.fits(self.pod))
            if is_enough:
                yield named[name]
