"""Options that several commands have, with one help text each."""

from pathlib import Path
from typing import Annotated

import typer

from purser.cli.from_settings import option
from purser.cli.serving import LogLevel
from purser.options import DRIVER_LIBRARY, DRIVER_ROOT_FILE, DRIVER_ROOTS, HOST_ROOT, NODE_NAME, SYSFS_ROOT

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Path of the kubeconfig; default: $KUBECONFIG, the pod's account, ~/.kube/config.")
]
Context = Annotated[str | None, typer.Option(help="Context in the kubeconfig; default: its current one.")]
NodeName = Annotated[str, option(NODE_NAME)]
HostRoot = Annotated[Path, option(HOST_ROOT)]
SysfsRoot = Annotated[Path, option(SYSFS_ROOT)]
DriverLibrary = Annotated[Path | None, option(DRIVER_LIBRARY)]
DriverRoots = Annotated[list[Path] | None, option(DRIVER_ROOTS)]
DriverRootFile = Annotated[Path | None, option(DRIVER_ROOT_FILE)]
LogLevelOption = Annotated[LogLevel, typer.Option(help="How much to log.")]
