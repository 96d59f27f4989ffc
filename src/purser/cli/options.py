"""Options that several commands have, with one help text each."""

from pathlib import Path
from typing import Annotated

import typer

from purser.cli.serving import LogLevel

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Path of the kubeconfig; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig; default: its current one.")]
NodeName = Annotated[str, typer.Option(help="This node's name in Kubernetes.", envvar="NODE_NAME")]
MetricsAddress = Annotated[str, typer.Option(help="Address of metrics and health.")]
MetricsPort = Annotated[int, typer.Option(min=0, max=65535, help="Port of metrics and health; 0: any free one.")]
DriverRoots = Annotated[
    list[Path] | None,
    typer.Option(help="Root of the driver, such as /run/nvidia/driver; of several the first that has its library."),
]
DriverRootFile = Annotated[
    Path | None,
    typer.Option(help="NVIDIA's file driver-ready, which names the root on the host; where it is there it counts."),
]
LogLevelOption = Annotated[LogLevel, typer.Option(help="How much to log.")]
