"""Options that several commands have, with one help text each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from purser.cli.output import DocumentFormat, OutputFormat
from purser.cli.serving import LogLevel

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="Path of the kubeconfig. Default: $KUBECONFIG, the pod's service account, or ~/.kube/config."),
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig. Default: the current context.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Log level.")]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
DocumentOption = Annotated[DocumentFormat, typer.Option("--output", "-o", help="Output format.")]


@dataclass(frozen=True)
class ClusterOptions:
    """Which cluster is meant."""

    kubeconfig: Kubeconfig = None
    context: Context = None
