"""Which of a log's decisions is the last one on a pod; where there is none, what the log has instead."""

from collections.abc import Iterable

import msgspec

from purser.core.decisions import DecisionLogError, Reader
from purser.core.decisions.records import (
    GrantTaken,
    Moment,
    NodesJudged,
    PodBound,
    PodKey,
    PodPlaced,
    Record,
    SchedulingStart,
)
from purser.core.decoding import brief
from purser.core.kubernetes.times import spelled
from purser.core.wording import counted, some

MAX_NAMESAKES = 16
"""Namespaces in which the log has a pod of the name, of which it is remembered."""

_PRIORITIZE_VERB = "prioritize"
"""The verb by which kube-scheduler asks about nodes that it has narrowed down since it asked by ``filter``."""


class PodDecision(msgspec.Struct, frozen=True):
    """The last decision on a pod in one file."""

    number: int
    """Of its record; the first of a file is 1."""
    at: float
    """Unix time, in seconds."""
    record: NodesJudged | PodPlaced
    judged: NodesJudged | None
    """The last time that nodes were compared for the pod; None: the file begins after it."""

    @property
    def is_narrowed(self) -> bool:
        """Whether kube-scheduler asked about fewer nodes than it had found to fit by itself."""
        return self.judged is not None and self.judged.verb == _PRIORITIZE_VERB


class DecisionSearch:
    """Reads one file up to a time, and remembers what concerns one pod."""

    def __init__(self, namespace: str, pod: str, until: float | None = None) -> None:
        """``pod``: a name, or a UID, for which the namespace counts nothing. ``until``: Unix time; None: the end."""
        self._namespace, self._pod, self._until = namespace, pod, until
        self.found: PodDecision | None = None
        self.problem = ""
        """Why the file was not read to its end; what was read before it counts."""
        self._placed: PodDecision | None = None
        """The last by which the pod was given GPUs."""
        self._start: SchedulingStart | None = None
        self._at = 0.0
        self._decisions = 0
        self._namesakes: set[str] = set()
        self._held_on = False

    def read(self, reader: Reader) -> None:
        """To be called once. Raises `DecisionLogError` for a file that is no scheduler's log."""
        records = iter(reader)
        start = next(records, None)
        if not isinstance(start, SchedulingStart):
            raise DecisionLogError(
                "the file is a simulation log, which does not name pods: use purser replay"
                if start is not None
                else "the file is empty: the scheduler has not written its first record yet"
            )
        self._start, self._at = start, start.at
        try:
            self._take(reader, records)
        except DecisionLogError as error:
            self.problem = str(error)

    def _take(self, reader: Reader, records: Iterable[Record]) -> None:
        for record in records:
            match record:
                case NodesJudged() | PodPlaced():
                    self._decide(reader.number, record)
                case GrantTaken():
                    grant = record.grant
                    self._held_on |= self._is_this_pod(PodKey(grant.pod_uid, grant.namespace, grant.pod))
                case PodBound():
                    # Of a pod that was placed early its nodes are compared once more before it is bound there.
                    if self._placed is not None and self._placed.record.pod.uid == record.pod_uid:
                        self.found = self._placed
                case Moment():
                    if self._until is not None and record.at > self._until:
                        return
                    self._at = record.at
                case _:
                    pass

    def _decide(self, number: int, record: NodesJudged | PodPlaced) -> None:
        self._decisions += 1
        if self._is_this_pod(record.pod):
            before = self.found
            is_same_pod = before is not None and before.record.pod.uid == record.pod.uid
            judged = record if isinstance(record, NodesJudged) else before.judged if before and is_same_pod else None
            self.found = PodDecision(number, self._at, record, judged)
            if isinstance(record, PodPlaced):
                self._placed = self.found if record.containers else None
        elif record.pod.name == self._pod and len(self._namesakes) < MAX_NAMESAKES:
            self._namesakes.add(record.pod.namespace)

    def _is_this_pod(self, pod: PodKey) -> bool:
        return pod.uid == self._pod or (pod.name, pod.namespace) == (self._pod, self._namespace)

    def lacking(self, *, is_only_file: bool) -> str:
        """What the file has in place of a decision on the pod, and what to do, in one line. ``is_only_file``: whether
        no other file was read."""
        start = self._start
        if start is None:
            return "none of the file could be read"
        has = f"the file has {counted(self._decisions, 'decision')} from {spelled(start.at)} to {spelled(self._at)}"
        return "; ".join([has, *self._hints(start, is_only_file)])

    def _hints(self, start: SchedulingStart, is_only_file: bool) -> Iterable[str]:
        if self.problem:
            yield f"the rest of the file could not be read: {self.problem}"
        if self._namesakes:
            there = some([brief(each) for each in sorted(self._namesakes)])
            word = "namespace" if len(self._namesakes) == 1 else "namespaces"
            yield f"a pod with this name exists in {word} {there}: select it with -n"
        if start.is_anonymous:
            yield (
                "names in the file are hashed: specify the pod's UID (kubectl get pod NAME"
                " -o jsonpath={.metadata.uid}) or the names as they are in the log"
            )
        if start.one_in > 1:
            yield f"the file has decisions on only one in {start.one_in} pods (scheduler.decisionLog.oneIn)"
        if self._namesakes:
            return
        if self._held_on:
            yield "the pod holds GPUs that were granted earlier: read the file before this one"
        elif self._until is not None:
            yield "read an earlier file or set a later --at"
        else:
            if is_only_file:
                yield "read another file in the folder"
            yield (
                "if kube-scheduler's own filters reject all nodes, Purser is not called: run the command on the "
                "cluster, without --from"
            )
