"""`purser why --scheduler`: the reasons that Purser's scheduler itself has, and what it has tried, by its read API."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from purser.cli.cluster_source import answer_of
from purser.cli.output import Column, DocumentFormat, OutputFormat, dump, fail, table_lines, terminal_width
from purser.cli.why_text import explanation_lines, one_line

if TYPE_CHECKING:
    from purser.core.explaining.grouping import ReasonCount
    from purser.core.state import ClusterState, PodWhy, StateGrant, StateReason, StateWaiting, WhyReason
    from purser.scheduler.explaining import ChangeKind, Explanation
    from purser.top.asking import ReadApi


def print_scheduler_reasons(api: "ReadApi", namespace: str, name: str, output: OutputFormat) -> None:
    """Print what the scheduler finds out about a pod; ends the command where it knows none of that name."""
    answer = _ask(api, namespace, name)
    if answer.why is None:
        _print_state(answer.state, namespace, name, output)
        return
    for note in _notes(answer.why):
        print(f"purser: {one_line(note)}", file=sys.stderr)
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(_document(answer.why, answer.state), DocumentFormat(output.value))
        return
    for line in _why_lines(answer, output):
        print(line)


class _Answer(NamedTuple):
    why: "PodWhy | None"
    """None: the scheduler knows no such pod, or is of a version that cannot tell."""
    state: "ClusterState | None"
    """Where that says more."""


def _ask(api: "ReadApi", namespace: str, name: str) -> _Answer:
    from purser.core.state import WhyState
    from purser.top.asking import StateReader

    async def ask() -> _Answer:
        async with StateReader(api) as reader:
            why = await reader.read_why(namespace, name)
            is_enough = why is not None and why.state is not WhyState.PLACED
            return _Answer(why, None if is_enough else await reader.read())

    return answer_of(ask())


def _notes(found: "PodWhy") -> Iterator[str]:
    yield from found.notes
    if found.ended_early:
        yield "the scheduler ended its search early, so other changes may make the pod fit, too"


def _document(found: "PodWhy", state: "ClusterState | None") -> dict[str, object]:
    """As the scheduler has it; of a pod on a node with what it holds, which the state says."""
    import msgspec

    document: dict[str, object] = msgspec.to_builtins(found)
    if state is None:
        return document
    return document | {"grant": msgspec.to_builtins(_find_grant(state, found.namespace, found.pod))}


def _why_lines(answer: _Answer, output: OutputFormat) -> Iterator[str]:
    found, state = answer
    assert found is not None
    held = _find_grant(state, found.namespace, found.pod)
    if held is not None:
        yield from _grant_lines(held)
        return
    last = f"Last message from scheduler {found.scheduler}: {found.last_message}"
    if found.fits:
        nodes = f"{found.fits} of {found.nodes} node{'' if found.nodes == 1 else 's'}"
        yield one_line(f"{found.namespace}/{found.pod} waits, but Purser does not reject it: {nodes} could take it now")
    else:
        yield from explanation_lines(_explanation_of(found), output, terminal_width(output), is_live=True)
    # Messages to kube-scheduler have no percent signs.
    texts = (each.text.replace("%", " percent") for each in found.reasons if each.text)
    is_told = any(text in found.last_message for text in texts)
    if found.last_message and (found.fits or found.objection or not is_told):
        yield one_line(last)
    if found.reasons and not found.fits:
        yield ""
        yield _MORE_CHANGES


_MORE_CHANGES = (
    "To try other changes, such as labels, tolerations, quotas and pods that end, run purser why with a kubeconfig."
)


def _explanation_of(found: "PodWhy") -> "Explanation":
    """The same in the words of `purser why`."""
    from purser.scheduler.explaining import Explanation, SuggestedChange, Suggestion

    return Explanation(
        found.namespace,
        found.pod,
        found.scheduler,
        found.state.capitalize(),
        found.node,
        found.nodes,
        objection=found.objection,
        reasons=tuple(map(_reason_count, found.reasons)),
        further_reasons=tuple(map(_reason_count, found.further_reasons)),
        suggestions=tuple(
            Suggestion(_kind_of(each.kind), each.text, SuggestedChange(), each.fits, each.examples)
            for each in found.suggestions
        ),
    )


def _reason_count(found: "WhyReason") -> "ReasonCount":
    from purser.core.explaining.grouping import ReasonCount

    return ReasonCount(found.by, found.reason, found.nodes, found.gpus, found.text, found.examples)


def _kind_of(word: str) -> "ChangeKind":
    """Some kind for the word of a newer scheduler: kinds are not printed."""
    from purser.scheduler.explaining import ChangeKind

    try:
        return ChangeKind(word)
    except ValueError:
        return ChangeKind.AMOUNT


def _print_state(state: "ClusterState | None", namespace: str, name: str, output: OutputFormat) -> None:
    """What the state says: all that schedulers of before can tell."""
    import msgspec

    assert state is not None
    waiting = [each for each in state.waiting if (each.namespace, each.pod) == (namespace, name)]
    held = _find_grant(state, namespace, name)
    if not waiting and held is None:
        _fail_unknown_pod(state, namespace, name)
    for note in state.notes if waiting else ():
        print(f"purser: {one_line(note)}", file=sys.stderr)
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(msgspec.to_builtins(waiting[0] if waiting else held), DocumentFormat(output.value))
        return
    for line in _waiting_lines(waiting[0], output) if waiting else () if held is None else _grant_lines(held):
        print(line)


def _find_grant(state: "ClusterState | None", namespace: str, name: str) -> "StateGrant | None":
    grants = () if state is None else state.grants
    return next((each for each in grants if (each.namespace, each.pod) == (namespace, name)), None)


def _fail_unknown_pod(state: "ClusterState", namespace: str, name: str) -> NoReturn:
    known = len(state.waiting) + len(state.grants)
    fail(f"the scheduler does not know pod {namespace}/{name}: none of {known} pods that wait for or hold GPUs matches")


def _waiting_lines(pod: "StateWaiting", output: OutputFormat) -> Iterator[str]:
    yield one_line(f"{pod.namespace}/{pod.pod} waits: {pod.message or pod.reason or 'the reason is unknown'}")
    if pod.reasons:
        yield ""
        yield from table_lines(pod.reasons, _columns(), output, width=terminal_width(output))
    yield ""
    yield "To see what would make the pod fit, run purser why with a kubeconfig."


def _grant_lines(grant: "StateGrant") -> Iterator[str]:
    yield one_line(f"{grant.namespace}/{grant.pod} is on node {grant.node} ({grant.state})")
    for container in grant.containers:
        for share in container.shares:
            cores = f" and {share.cores_percent}% of its compute" if share.cores_percent else ""
            yield one_line(f"Container {container.name} holds {share.memory_mib} MiB of GPU {share.index}{cores}.")


def _columns() -> "list[Column[StateReason]]":
    return [
        Column("NODES", lambda each: each.nodes),
        Column("REASON", lambda each: each.reason),
        Column("OF", lambda each: each.by),
    ]
