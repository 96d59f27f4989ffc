"""`purser mig-worker`: applies MIG layouts on one node."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.options import Context, DriverLibrary, DriverRootFile, DriverRoots, Kubeconfig, LogLevelOption, NodeName
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.mig import MigHardware

HELP = """Apply the MIG layouts that the operator asks for on this node.

The operator runs it on nodes whose GPUs can MIG, as root. It changes nothing by itself.

Exit code: 0 it was told to stop; 1 it could not go on; 2 wrong usage: an option, or the kubeconfig.

Example: purser mig-worker --node-name $(hostname) --config /etc/purser/mig/config.yaml
"""


def mig_worker(
    node_name: NodeName,
    config: Annotated[Path, typer.Option(help="File with the layouts, in mig-parted's form.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    driver_library: DriverLibrary = None,
    driver_root: DriverRoots = None,
    driver_root_file: DriverRootFile = None,
    host_root: Annotated[
        Path, typer.Option(help="Where the host's file system is mounted; looked into where the root has no driver.")
    ] = Path("/"),
    toolkit_dir: Annotated[Path, typer.Option(help="On the host: folder of nvidia-ctk.")] = Path(
        "/usr/local/nvidia/toolkit"
    ),
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run until it is told to stop."""
    import asyncio

    from purser.agent.driver_roots import driver_roots, find_place, read_place
    from purser.agent.mig import run
    from purser.agent.mig.cdi import renew_management_spec
    from purser.cli.serving import configure_logs, serve
    from purser.kube import Client, ClusterConfig

    configure_logs(log_level)

    def open_hardware() -> "MigHardware":
        from purser.agent.mig.nvml import open_mig

        roots = driver_roots(driver_root_file, driver_root or (), host_root)
        return open_mig(driver_library, (*roots, host_root))

    def renew() -> None:
        place = read_place(driver_root_file) or find_place(driver_root or (), host_root)
        renew_management_spec(host_root, place, toolkit_dir)

    async def main(stop: asyncio.Event) -> None:
        settings = ClusterConfig.load(kubeconfig, context)
        async with Client(settings, field_manager="purser-mig-worker", user_agent="purser-mig-worker") as client:
            await run(node_name, client, config, open_hardware, stop, renew)

    serve(main)
