"""Where `purser get` reads what it shows: the API server, or the read API of Purser's scheduler."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from purser.cli.cluster_source import ask_cluster
from purser.cli.options import ClusterOptions
from purser.cli.output import MISUSED, fail
from purser.cli.read_api import SchedulerOptions, read_api_of, read_state, refuse_both_sources

if TYPE_CHECKING:
    from purser.cli.shown_cluster import ShownCluster
    from purser.core.state import ClusterState
    from purser.kube import Client
    from purser.kube.objects import Node, Pod
    from purser.top.asking import ReadApi

T = TypeVar("T")


@dataclass(frozen=True)
class GetSource:
    """What to ask, and for which nodes."""

    cluster: ClusterOptions
    api: "ReadApi | None" = None
    """None: the API server is asked."""
    selector: str | None = None
    """Of labels; the API server alone has them."""
    nodes: Sequence[str] = ()
    """Those that were named."""
    shows_gpus: bool = False
    """Whether GPUs are shown that no pod holds."""


def source_of(
    cluster: ClusterOptions,
    asked: SchedulerOptions,
    namespace: str | None = None,
    *,
    selector: str | None = None,
    nodes: Sequence[str] | None = None,
    shows_gpus: bool = False,
) -> GetSource:
    """What the options say together; ends the command where they do not go together. ``namespace``: whose part of the
    scheduler's state to read."""
    api = read_api_of(asked.scheduler, asked.token_file, asked.certificate_authority, namespace)
    refuse_both_sources(asked.scheduler, cluster.kubeconfig, cluster.context)
    if api is not None and selector is not None:
        fail(
            "--scheduler cannot be used with --selector, because the read API does not have all labels of nodes: use "
            "--node, or omit --scheduler",
            MISUSED,
        )
    return GetSource(cluster, api, selector, nodes or (), shows_gpus)


def ask(source: GetSource, read: "Callable[[Client], Awaitable[T]]") -> T:
    """What the API server answers; ends the command where it does not."""
    _configure_logs()
    return ask_cluster(source.cluster.kubeconfig, source.cluster.context, read)


def ask_state(api: "ReadApi") -> "ClusterState":
    """What the scheduler answers; ends the command where it does not."""
    _configure_logs()
    return read_state(api)


def read_shown(source: GetSource) -> "ShownCluster":
    """What there is now; ends the command where a node that was named has no GPUs."""
    from purser.adapters.snapshot import read_objects

    view = SourceView(source)
    if source.api is not None:
        return view.of_state(ask_state(source.api))
    return view.of_objects(*ask(source, lambda client: read_objects(client, source.selector)))


class SourceView:
    """What a source has, read once or again and again: each problem is printed once, on standard error."""

    def __init__(self, source: GetSource) -> None:
        self._source = source
        self._printed: set[str] = set()
        self._is_first = True

    def of_objects(self, nodes: "Iterable[Node]", pods: "Iterable[Pod]") -> "ShownCluster":
        """What the API server has."""
        from purser.adapters.snapshot import fleet_of
        from purser.cli.shown_cluster import shown_of_fleet

        by_name = {node.metadata.name: node for node in nodes}
        fleet, problems = fleet_of(by_name.values(), pods)
        return self._checked(shown_of_fleet(fleet, by_name), problems)

    def of_state(self, state: "ClusterState") -> "ShownCluster":
        """What the scheduler has."""
        from purser.cli.shown_state import is_partial, shown_of_state

        about_reasons = () if state.replica is None else state.replica.notes  # why pods wait is not shown
        notes = [note for note in state.notes if note not in about_reasons]
        namespace = "" if self._source.api is None else self._source.api.namespace
        if self._source.shows_gpus and namespace and is_partial(state):
            notes.append(
                f"only GPUs that pods in namespace {namespace} hold are shown: the scheduler shows other GPUs to those "
                "who may list nodes"
            )
        return self._checked(shown_of_state(state), notes)

    def _checked(self, cluster: "ShownCluster", problems: Sequence[str]) -> "ShownCluster":
        is_disputed = any(state.disputed for node in cluster.nodes.values() for state in node.devices)
        if (problems and self._source.api is None) or is_disputed:
            where = "" if self._source.api is None else " with a kubeconfig"
            problems = [
                *problems,
                f"records of who holds which GPU differ: run purser get grants --check{where} to see where",
            ]
        for sentence in problems:
            if sentence not in self._printed:
                print(f"purser: {_line(sentence)}", file=sys.stderr)
        self._printed.update(problems)
        if self._is_first:  # nodes may go while they are watched
            _check_names(self._source, cluster)
        self._is_first = False
        return cluster


def _check_names(source: GetSource, cluster: "ShownCluster") -> None:
    """End the command where a node that was named has no GPUs, and no pod there holds any."""
    import difflib

    there = cluster.known_nodes
    for name in source.nodes:
        if name not in there:
            close = difflib.get_close_matches(name, sorted(there), 1)
            hint = f". Did you mean {close[0]}?" if close else ""
            labelled = f" with labels {source.selector}" if source.selector else ""
            hidden = ", or its GPUs are not shown to you" if source.api is not None and source.api.namespace else ""
            fail(f"node {name}{labelled} does not exist or has not published GPUs{hidden}{hint}")


def _line(text: str) -> str:
    """One line, which does not command the terminal."""
    from purser.core.decoding import brief

    return brief(text, 2000)


def _configure_logs() -> None:
    from purser.cli.serving import LogLevel, configure_logs

    configure_logs(LogLevel.WARNING)
