"""The options by which a command asks the scheduler's read API, and what it answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.cluster_source import answer_of
from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from purser.core.state import ClusterState
    from purser.top.asking import ReadApi

SchedulerUrl = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="URL of the scheduler's read API, which is then queried instead of the cluster.",
        metavar="https://HOST:PORT",
    ),
]
SchedulerNamespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="With --scheduler: show only this namespace's pods.")
]
SchedulerTokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the bearer token for --scheduler.")
]
SchedulerCa = Annotated[
    Path | None,
    typer.Option(
        "--certificate-authority", help="File with the CA certificate that signed the scheduler's certificate."
    ),
]


@dataclass(frozen=True)
class SchedulerOptions:
    """Which scheduler's read API is asked, if any, and as whom."""

    scheduler: SchedulerUrl = None
    token_file: SchedulerTokenFile = None
    certificate_authority: SchedulerCa = None


def read_api_of(
    url: str | None, token_file: Path | None, ca_file: Path | None, namespace: str | None = None
) -> "ReadApi | None":
    """What the options say together; ends the command where they do not go together. ``namespace``: whose part of the
    state to read; None: the whole."""
    if url is None:
        if token_file is not None or ca_file is not None:
            fail("--token-file and --certificate-authority require --scheduler", MISUSED)
        return None
    if token_file is None:
        advice = "run kubectl create token ACCOUNT --audience=purser-read-api > FILE, and use --token-file FILE"
        fail(f"--scheduler requires a token: {advice}", MISUSED)
    from purser.core.kubernetes.naming import is_label
    from purser.top.asking import ReadApi, token_from_file

    if namespace is not None and not is_label(namespace):
        fail(f"invalid value {namespace!r} for --namespace: must be an RFC 1123 label", MISUSED)
    return ReadApi(url, token_from_file(token_file), ca_file, namespace or "")


def refuse_both_sources(scheduler: str | None, kubeconfig: Path | None, context: str | None) -> None:
    """End the command where the scheduler and the API server are to be asked for the same."""
    if scheduler is not None and (kubeconfig is not None or context is not None):
        fail("--scheduler cannot be used with --kubeconfig or --context", MISUSED)


def refuse_namespace_alone(namespace: str | None, scheduler: str | None) -> None:
    """End the command where a namespace is named, of which only the scheduler has a part."""
    if namespace is not None and scheduler is None:
        fail("--namespace requires --scheduler", MISUSED)


def read_state(api: "ReadApi") -> "ClusterState":
    """The state now; ends the command where there is no answer, or the wrong one."""
    from purser.top.asking import StateReader

    async def ask() -> "ClusterState":
        async with StateReader(api) as reader:
            return await reader.read()

    return answer_of(ask())
