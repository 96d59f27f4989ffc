"""`purser why --scheduler`: the reasons that Purser's scheduler itself has, by its read API."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from purser.cli.output import Column, DocumentFormat, OutputFormat, dump, fail, table_lines, terminal_width
from purser.cli.read_api import read_state

if TYPE_CHECKING:
    from purser.core.state import ClusterState, StateGrant, StateReason, StateWaiting
    from purser.top.asking import ReadApi


def print_scheduler_reasons(api: "ReadApi", namespace: str, name: str, output: OutputFormat) -> None:
    """Print what the scheduler knows of a pod; ends the command where it knows none of that name."""
    import msgspec

    state = read_state(api)
    waiting = [each for each in state.waiting if (each.namespace, each.pod) == (namespace, name)]
    held = [each for each in state.grants if (each.namespace, each.pod) == (namespace, name)]
    if not waiting and not held:
        _fail_unknown_pod(state, namespace, name)
    for note in state.notes if waiting else ():
        print(f"purser: {_line(note)}", file=sys.stderr)
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        dump(msgspec.to_builtins((waiting or held)[0]), DocumentFormat(output.value))
        return
    for line in _waiting_lines(waiting[0], output) if waiting else _grant_lines(held[0]):
        print(line)


def _fail_unknown_pod(state: "ClusterState", namespace: str, name: str) -> NoReturn:
    known = len(state.waiting) + len(state.grants)
    fail(f"the scheduler does not know pod {namespace}/{name}: none of {known} pods that wait for or hold GPUs matches")


def _waiting_lines(pod: "StateWaiting", output: OutputFormat) -> Iterator[str]:
    yield _line(f"{pod.namespace}/{pod.pod} waits: {pod.message or pod.reason or 'the reason is unknown'}")
    if pod.reasons:
        yield ""
        yield from table_lines(pod.reasons, _columns(), output, width=terminal_width(output))
    yield ""
    yield "To see what would make the pod fit, run purser why with a kubeconfig."


def _grant_lines(grant: "StateGrant") -> Iterator[str]:
    yield _line(f"{grant.namespace}/{grant.pod} is on node {grant.node} ({grant.state})")
    for container in grant.containers:
        for share in container.shares:
            cores = f" and {share.cores_percent}% of its compute" if share.cores_percent else ""
            yield _line(f"Container {container.name} holds {share.memory_mib} MiB of GPU {share.index}{cores}.")


def _columns() -> "list[Column[StateReason]]":
    return [
        Column("NODES", lambda each: each.nodes),
        Column("REASON", lambda each: each.reason),
        Column("OF", lambda each: each.by),
    ]


def _line(text: str) -> str:
    """One line, which does not command the terminal."""
    from purser.core.decoding import brief

    return brief(text, 2000)
