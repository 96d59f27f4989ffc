"""Settings of the MIG worker. The options are described in `purser.options`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from purser.options import DRIVER_LIBRARY, DRIVER_ROOT_FILE, DRIVER_ROOTS, HOST_ROOT, NODE_NAME, Option

_HOST_ROOT_HELP = "Where the host's root file system is mounted; searched if no driver is found in the driver roots."


@dataclass(frozen=True)
class MigWorkerSettings:
    """Settings of one worker process."""

    node_name: Annotated[str, NODE_NAME]
    layouts_file: Annotated[Path, Option("File with MIG layouts, in mig-parted's format.", name="config")]
    driver_library: Annotated[Path | None, DRIVER_LIBRARY] = None
    driver_roots: Annotated[tuple[Path, ...], DRIVER_ROOTS] = ()
    driver_root_file: Annotated[Path | None, DRIVER_ROOT_FILE] = None
    host_root: Annotated[Path, replace(HOST_ROOT, help=_HOST_ROOT_HELP)] = Path("/")
    toolkit_dir: Annotated[
        Path, Option("Folder on the host with nvidia-ctk. If the folder does not contain it, /usr/bin is used.")
    ] = Path("/usr/local/nvidia/toolkit")
