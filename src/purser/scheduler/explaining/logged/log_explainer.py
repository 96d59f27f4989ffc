"""What is said of one pod of a decision log."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from purser.core.decisions import DecisionLogError, Reader
from purser.core.decisions.records import NodesJudged, PodPlaced, Record, SchedulingStart
from purser.core.decisions.scheduling import SchedulingReplay
from purser.core.decoding import brief
from purser.core.explaining.filters import FilterRejection
from purser.core.explaining.grouping import ReasonCount, describe_node, grouped_refusals, grouped_rejections
from purser.core.explaining.reasons import FilterReason
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.kubernetes.times import spelled
from purser.core.model import Grant
from purser.core.names import SCHEDULER_NAME
from purser.core.placement import Placement
from purser.core.wording import counted, natural_sort_key, some
from purser.scheduler.explaining.changes import Suggestion
from purser.scheduler.explaining.choosing import compare_nodes, describe_held_gpus
from purser.scheduler.explaining.explanation import Explanation, UnknownPodError
from purser.scheduler.explaining.logged.finding import DecisionSearch, PodDecision
from purser.scheduler.explaining.logged.fleet_changes import (
    ended,
    raise_quotas,
    smallest_quota_use,
    unaligned,
    uncordon_fewest,
)
from purser.scheduler.explaining.logged.moment import LoggedMoment
from purser.scheduler.explaining.logged.request_changes import smaller_requests, wider_choices


class LogFile(NamedTuple):
    """One file of a decision log; it stands by itself."""

    name: str
    """For people."""
    open: Callable[[], AbstractContextManager[BinaryIO]]


def explain_from_log(files: Sequence[LogFile], namespace: str, pod: str, until: float | None = None) -> Explanation:
    """Of the last decision on a pod, at a time or before it. ``files``: the newest first; ``pod``: a name, or a UID,
    for which the namespace counts nothing; ``until``: Unix time, None: the end.

    Raises `UnknownPodError`, with what to do; `DecisionLogError` where the decision makes no sense, or none of the
    files is a scheduler's log; OSError.
    """
    without: list[tuple[str, str]] = []
    unreadable: list[DecisionLogError] = []
    for file in files:
        search = DecisionSearch(namespace, pod, until)
        try:
            with file.open() as stream:
                search.read(Reader(stream.read))
        except DecisionLogError as error:
            unreadable.append(DecisionLogError(f"{file.name}: {error}"))
            continue
        if search.found is not None:
            notes = [f"{file.name} could be read only in part: {search.problem}"] if search.problem else []
            try:
                with file.open() as stream:
                    return _explained(Reader(stream.read), search.found, notes + [str(each) for each in unreadable])
            except DecisionLogError as error:
                raise DecisionLogError(f"{file.name}: {error}") from error
        without.append((file.name, search.lacking(is_only_file=len(files) == 1)))
    if unreadable and not without:
        raise unreadable[0]
    (name, lacking), *others = without
    message = f"no decision on pod {pod} in namespace {namespace} found in {name}"
    if others:
        message += f" and {counted(len(others), 'more file')}. {name}"
    raise UnknownPodError(f"{message}: {lacking}")


def _explained(reader: Reader, decision: PodDecision, notes: list[str]) -> Explanation:
    """Raises `DecisionLogError`."""
    records = iter(reader)
    start = next(records, None)
    if not isinstance(start, SchedulingStart):
        raise DecisionLogError("the file has just changed: something may still be writing to it")
    replay = SchedulingReplay(start)
    try:
        target = _follow(reader, records, replay, decision)
        if target is None:
            raise ValueError("the file has just changed: something may still be writing to it")
        if (difference := replay.apply(target)) is not None:
            notes.append(f"this version of Purser decides differently from the log: {difference.why}")
        found = (
            _explain_placed(replay, target, decision)
            if _is_placed(target)
            else _explain_waiting(replay, target, decision)
        )
        return replace(found, at=spelled(decision.at), notes=(*notes, *found.notes))
    except DecisionLogError:
        raise
    except Exception as error:  # whatever the kernel makes of numbers that others wrote is these numbers' fault
        raise reader.error(brief(error) or type(error).__name__) from error


def _follow(
    reader: Reader, records: Iterable[Record], replay: SchedulingReplay, decision: PodDecision
) -> NodesJudged | PodPlaced | None:
    """The decision, in the state in which it was made."""
    for record in records:
        if reader.number == decision.number:
            return record if isinstance(record, NodesJudged | PodPlaced) else None
        replay.follow(record)
    return None


def _is_placed(record: NodesJudged | PodPlaced) -> bool:
    return isinstance(record, PodPlaced) and bool(record.containers)


def _explain_placed(replay: SchedulingReplay, record: NodesJudged | PodPlaced, decision: PodDecision) -> Explanation:
    assert isinstance(record, PodPlaced)
    node, asked, judged = replay.node(record.node), replay.asked(record), decision.judged
    names = replay.fleet.names() if judged is None else replay.candidates(judged)
    found = replay.evaluate(asked, names)
    grant = Grant(record.pod.uid, record.pod.namespace, record.pod.name, node, record.containers)
    why = replay.evaluator.why(asked.request, Placement(node, record.containers, record.pools))
    scores = dict(zip(found.fits, found.scores.tolist(), strict=True))
    policy = replay.evaluator.policy.node_policy(asked.request)
    choice = compare_nodes(policy, tuple(describe_held_gpus(replay.fleet, grant)), scores, node, why)
    return replace(_head(record, "Placed", len(names)), node=node, choice=choice)


def _explain_waiting(replay: SchedulingReplay, record: NodesJudged | PodPlaced, decision: PodDecision) -> Explanation:
    names = replay.candidates(record) if isinstance(record, NodesJudged) else [replay.node(record.node)]
    moment = LoggedMoment(replay, replay.asked(record), names)
    not_asked = [] if decision.is_narrowed or isinstance(record, PodPlaced) else moment.not_asked
    rejections = dict.fromkeys(not_asked, FilterRejection(FilterReason.NOT_ASKED))
    rejected = {name: describe_node(each) for name, each in rejections.items()}
    found = moment.found
    head = _head(record, "Waiting", len(names) + len(not_asked))
    return replace(
        head,
        fits=tuple(found.fits),
        reasons=_reasons(moment, rejections),
        by_node=rejected | {name: brief(each.message_to_operators) for name, each in found.refusals.items()},
        suggestions=() if found.fits else tuple(_suggestions(moment)),
        notes=tuple(_nodes_with_room(moment, not_asked)),
    )


def _nodes_with_room(moment: LoggedMoment, not_asked: list[str]) -> Iterator[str]:
    """Which nodes only other filters keep the pod from."""
    fits = sorted(moment.evaluate(names=not_asked).fits, key=natural_sort_key) if not_asked else ()
    if fits:
        them = "it" if len(fits) == 1 else "them"
        yield (
            f"kube-scheduler filtered out {counted(len(fits), 'node')} with room for the pod ({some(fits)}): to see "
            f"which filter rejects {them} now, run purser why without --from"
        )


def _head(record: NodesJudged | PodPlaced, state: str, nodes: int) -> Explanation:
    return Explanation(record.pod.namespace, record.pod.name, SCHEDULER_NAME, state, nodes=nodes)


def _reasons(moment: LoggedMoment, rejections: dict[str, FilterRejection]) -> tuple[ReasonCount, ...]:
    quota = _quota(moment.asked.left)
    idle_only = moment.idle_only()
    refused = grouped_refusals(moment.found.refusals, moment.request, moment.fleet, idle_only=idle_only, quota=quota)
    return tuple(sorted([*grouped_rejections(rejections.items()), *refused], key=lambda each: -each.nodes))


def _quota(left: QuotaLimits) -> str:
    if left == UNLIMITED:
        return ""
    parts = ((" MiB of GPU memory", left.memory_mib), ("% of compute", left.cores_percent))
    return f"it leaves {' and '.join(f'{each}{unit}' for unit, each in parts if each is not None)}"


def _suggestions(moment: LoggedMoment) -> Iterator[Suggestion]:
    """Changes of the pod first, then of its namespace, of nodes, of other pods."""
    demand = smallest_quota_use(moment)
    yield from smaller_requests(moment)
    yield from wider_choices(moment)
    yield from raise_quotas(moment, demand)
    yield from uncordon_fewest(moment)
    yield from unaligned(moment)
    yield from ended(moment, demand)
