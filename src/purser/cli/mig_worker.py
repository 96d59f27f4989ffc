"""`purser mig-worker`: applies MIG layouts on one node."""

from typing import TYPE_CHECKING

from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.mig import MigHardware
    from purser.agent.mig.settings import MigWorkerSettings

SETTINGS = "purser.agent.mig.settings:MigWorkerSettings"
"""Whose options the command has."""

HELP = """Apply the MIG layouts that the operator requests for this node.

The operator runs this command as root on nodes whose GPUs support MIG. The command only makes changes that the operator
requests.

Exit code: 0 the command was stopped; 1 the command could not continue; 2 wrong usage, such as an invalid option or
kubeconfig.

Example: purser mig-worker --node-name $(hostname) --config /etc/purser/mig/config.yaml
"""


def mig_worker(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "MigWorkerSettings",
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run until it is stopped."""
    import asyncio

    from purser.agent.inventory.driver_roots import driver_roots, find_place, read_place
    from purser.agent.mig import run
    from purser.agent.mig.cdi import renew_management_spec
    from purser.cli.serving import configure_logs, serve
    from purser.kube import Client, ClusterConfig

    configure_logs(log_level)

    def open_hardware() -> "MigHardware":
        from purser.agent.mig.nvml import open_mig

        roots = driver_roots(settings.driver_root_file, settings.driver_roots, settings.host_root)
        return open_mig(settings.driver_library, (*roots, settings.host_root))

    def renew() -> None:
        place = read_place(settings.driver_root_file) or find_place(settings.driver_roots, settings.host_root)
        renew_management_spec(settings.host_root, place, settings.toolkit_dir)

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        async with Client(config, field_manager="purser-mig-worker", user_agent="purser-mig-worker") as client:
            await run(settings.node_name, client, settings.layouts_file, open_hardware, stop, renew)

    serve(main)
