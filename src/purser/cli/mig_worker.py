"""`purser mig-worker`: applies MIG layouts on one node."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from purser.cli.options import Context, Kubeconfig, LogLevelOption, NodeName
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.mig import MigHardware

HELP = """Apply the MIG layouts that the operator asks for on this node.

The operator runs it on nodes whose GPUs can MIG, as root. It changes nothing by itself.

Example: purser mig-worker --node-name $(hostname) --config /etc/purser/mig/config.yaml
"""


def mig_worker(
    node_name: NodeName,
    config: Annotated[Path, typer.Option(help="File with the layouts, in mig-parted's form.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    driver_library: Annotated[Path | None, typer.Option(help="The NVML library, when it is no usual place.")] = None,
    driver_root: Annotated[Path | None, typer.Option(help="Root of the driver, such as /run/nvidia/driver.")] = None,
    host_root: Annotated[
        Path, typer.Option(help="Where the host's file system is mounted; looked into where the root has no driver.")
    ] = Path("/"),
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run until it is told to stop."""
    import asyncio

    from purser.agent.mig import run
    from purser.cli.serving import configure_logs, serve
    from purser.kube import Client, ClusterConfig

    configure_logs(log_level)

    def open_hardware() -> "MigHardware":
        from purser.agent.mig.nvml import open_mig

        return open_mig(driver_library, driver_root, host_root)

    async def main(stop: asyncio.Event) -> None:
        settings = ClusterConfig.load(kubeconfig, context)
        async with Client(settings, field_manager="purser-mig-worker", user_agent="purser-mig-worker") as client:
            await run(node_name, client, config, open_hardware, stop)

    serve(main)
