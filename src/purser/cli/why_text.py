"""The text of `purser why`: what is said of one pod, line by line."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from purser.cli.output import Column, OutputFormat, table_lines

if TYPE_CHECKING:
    from purser.core.explaining.grouping import ReasonCount
    from purser.scheduler.explaining import ChosenNode, Explanation, NodeScore, Obstacle, Suggestion


def explanation_lines(
    found: "Explanation",
    output: OutputFormat = OutputFormat.TABLE,
    width: int | None = None,
    *,
    is_live: bool = False,
) -> Iterator[str]:
    """What is printed of an explanation. ``width``: as `table_lines` takes it; ``is_live``: the scheduler itself has
    tried its changes."""
    yield one_line(_summary(found))
    if found.obstacle is not None and found.obstacle.remedy:
        yield found.obstacle.remedy
    if found.fits and found.last_message and not found.objection:
        yield one_line(f"Last message from scheduler {found.scheduler or 'default-scheduler'}: {found.last_message}")
        yield _OUTDATED_OR_UNCHECKED
    if without_gates := _without_gates(found):
        yield without_gates
    for line in _choice(found.choice, is_past=bool(found.at)) if found.choice is not None else ():
        yield one_line(line)
    if found.reasons:
        yield ""
        yield from table_lines(found.reasons, _columns(), output, width=width)
    if found.further_reasons:
        yield ""
        yield _FURTHER_REASONS
        yield from table_lines(found.further_reasons, _columns(), output, width=width)
    if found.reasons and not (found.fits or found.objection):
        yield ""
        yield _changes_text(found, is_live=is_live)
    for each in found.suggestions:
        yield one_line(f"- {each.text}: {_places_text(each)}")


def _without_gates(found: "Explanation") -> str:
    """What nodes would say of a pod with scheduling gates; empty: it has none, or that is not known."""
    if found.fits_without_gates:
        some = ", ".join(found.fits_without_gates[:3])
        fitting = _fitting(found.fits_without_gates, found.nodes)
        return f"Without its gates, the pod would fit on {fitting} now ({some})."
    if found.gates and found.reasons:
        return f"Without its gates, the pod would still wait: {_fits_none(found.nodes)}."
    return ""


def _changes_text(found: "Explanation", *, is_live: bool) -> str:
    if not found.suggestions:
        if is_live:
            return _NO_LIVE_CHANGE
        return _NO_PAST_CHANGE if found.at else _NO_CHANGE
    if len(found.suggestions) == 1:
        return _ONE_PAST_CHANGE if found.at else _ONE_CHANGE
    return _PAST_CHANGES if found.at else _CHANGES


_FURTHER_REASONS = (
    "Of a node that kube-scheduler rejects, only the first reason is listed above. These nodes also have the following "
    "reasons:"
)

_CHANGES = (
    "Each of these changes alone makes the pod fit now, and is the smallest of its kind. Each was tried with the "
    "scheduler's own code:"
)
_ONE_CHANGE = (
    "This change makes the pod fit now, and is the smallest of its kind. It was tried with the scheduler's own code:"
)
_NO_CHANGE = "None of the changes that purser why tries makes the pod fit now."
_NO_LIVE_CHANGE = "None of the changes that the scheduler tries makes the pod fit now."
_PAST_CHANGES = (
    "Each of these changes alone would have made the pod fit, and was the smallest of its kind. Each was "
    "tried with the scheduler's own code:"
)
_ONE_PAST_CHANGE = (
    "This change would have made the pod fit, and was the smallest of its kind. It was tried with the "
    "scheduler's own code:"
)
_NO_PAST_CHANGE = "None of the changes that purser why tries would have made the pod fit."

_OUTDATED_OR_UNCHECKED = (
    'That message is out of date, or is about something that purser why does not check (see "Why a pod waits" in the '
    "documentation)."
)


def _places_text(found: "Suggestion") -> str:
    others = found.fits - len(found.examples)
    if not found.examples:
        return f"the pod then fits on {found.fits} node{'' if found.fits == 1 else 's'}"
    return f"the pod then fits on {', '.join(found.examples)}{f' and {others} more' if others else ''}"


def _summary(found: "Explanation") -> str:
    whose = f"{found.namespace}/{found.pod}"
    if found.state == "Ended":
        return _summary_of_ended(whose, found)
    if found.at:
        return _summary_of_log(whose, found)
    if found.state == "New":
        return _summary_of_new(whose, found)
    if found.state == "Placed":
        return _summary_of_placed(whose, found)
    if found.objection:
        return f"{whose} waits: {found.objection}"
    if found.fits:
        some = f"{whose} waits, and fits on {_fitting(found.fits, found.nodes)} now ({', '.join(found.fits[:3])})"
        scheduler = f"scheduler {found.scheduler or 'default-scheduler'}"
        return some if found.last_message else f"{some}: {scheduler} has not tried to place the pod yet"
    return f"{whose} waits: {_fits_none(found.nodes)}"


def _fitting(fits: tuple[str, ...], nodes: int) -> str:
    from purser.core.wording import counted

    return f"{len(fits)} of {counted(nodes, 'node')}"


def _fits_none(nodes: int) -> str:
    if not nodes:
        return "there are no nodes"
    return "it does not fit on the only node" if nodes == 1 else f"it fits on none of {nodes} nodes"


def _summary_of_placed(whose: str, found: "Explanation") -> str:
    held_by = found.obstacle
    if held_by is None:
        return f"{whose} is on node {found.node}"
    if not held_by.others_run:
        return f"{whose} is on node {found.node}, but does not run: {_obstacle(held_by)}"
    said = ": ".join(filter(None, (held_by.reason, held_by.text)))
    return f"{whose} runs on node {found.node}, but {held_by.by} does not{f': {said}' if said else ''}"


def _summary_of_ended(whose: str, found: "Explanation") -> str:
    if found.obstacle is not None:
        return f"{whose} failed{f' on node {found.node}' if found.node else ''}: {_obstacle(found.obstacle)}"
    return f"{whose} has ended{f': {found.objection}' if found.objection else ''}"


def _obstacle(found: "Obstacle") -> str:
    who = f"{found.reason} ({found.by})" if found.reason else found.by
    return f"{who}: {found.text}" if found.text else who


def _summary_of_new(whose: str, found: "Explanation") -> str:
    if found.objection:
        return f"{whose} would not be placed: {found.objection}"
    if not found.fits:
        return f"{whose} would wait: {_fits_none(found.nodes)}"
    some = ", ".join(found.fits[:3])
    scheduler = f"scheduler {found.scheduler or 'default-scheduler'}"
    return f"{whose} would fit on {_fitting(found.fits, found.nodes)} now ({some}), placed by {scheduler}"


def _summary_of_log(whose: str, found: "Explanation") -> str:
    if found.state == "Placed":
        return f"{whose} was placed on node {found.node} at {found.at}"
    if found.fits:
        names = ", ".join(found.fits[:3])
        return f"{whose} fitted on {_fitting(found.fits, found.nodes)} at {found.at} ({names}), but had no GPUs yet"
    none = "it did not fit on the only node" if found.nodes == 1 else f"it fitted on none of {found.nodes} nodes"
    return f"{whose} waited at {found.at}: {none if found.nodes else 'there were no nodes'}"


def _choice(found: "ChosenNode", *, is_past: bool) -> Iterator[str]:
    """What it holds there, and what else there was."""
    if found.gpus:
        yield f"The pod {'got' if is_past else 'holds'} {'; '.join(found.gpus)}."
    if found.fault:
        yield f"Unhealthy: {found.fault}."
    if not found.policy:
        return
    nodes = f"{found.fits} node{'' if found.fits == 1 else 's'}"
    lead = (
        f"In the cluster as it was then, the pod would have fitted on {nodes}"
        if is_past
        else f"In the cluster as it is now without the pod, the pod would fit on {nodes}"
    )
    verb, ranks = ("was", "ranked") if is_past else ("is", "ranks")
    if found.own is None:
        others = f"{found.fits} other node{'' if found.fits == 1 else 's'}, but not its own"
        why = f" ({found.own_reason})" if found.own_reason else ""
        yield f"{lead.removesuffix(nodes)}{others if found.fits else 'no node, not even its own'}{why}."
        return
    yield f"{lead}. Policy {found.policy} {ranks} the pod's node number {found.rank}: {_score(found.own)}."
    if found.runner_up is not None:
        yield f"The best other node {verb} {found.runner_up.node}: {_score(found.runner_up)}."
    if found.gpus_why:
        yield f"Reason for the choice of GPUs: {found.gpus_why}."


def _score(found: "NodeScore") -> str:
    if found.is_kept:
        return "the policy keeps the node for other pods"
    return "the policy finds too little free CPU or memory there" if found.score is None else f"score {found.score:.1f}"


def _columns() -> "list[Column[ReasonCount]]":
    return [
        Column("NODES", lambda each: each.nodes),
        Column("GPUS", lambda each: each.gpus or None),
        Column("REASON", lambda each: each.reason),
        Column("OF", lambda each: each.by),
        Column("WHAT", lambda each: each.text),
        Column("FOR EXAMPLE", lambda each: each.examples, wide=True),
    ]


def one_line(text: str) -> str:
    """One line, which does not command the terminal."""
    from purser.core.decoding import brief

    return brief(text, 2000)
