"""Options that several commands have, with one help text each."""

from pathlib import Path
from typing import Annotated

import typer

from purser.cli.output import DocumentFormat, OutputFormat
from purser.cli.serving import LogLevel

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Path of the kubeconfig; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig; default: its current one.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="How much to log.")]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
DocumentOption = Annotated[DocumentFormat, typer.Option("--output", "-o", help="Output format.")]
