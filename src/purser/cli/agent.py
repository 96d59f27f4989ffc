"""`purser agent`: the node's device plugin."""

from typing import TYPE_CHECKING

from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.settings import AgentSettings

SETTINGS = "purser.agent.settings:AgentSettings"
"""Whose options the command has."""

HELP = """Serve one node: kubelet's device plugin for nvidia.com/gpu, health, metrics.

Runs on every node with GPUs, as root; the Helm chart's DaemonSet does so. SIGHUP looks for GPUs anew. Without a
driver, kubelet or API server it waits for them, and says so in its log and under /readyz.

Exit code: 0 it was told to stop; 1 it could not go on, such as for a port that is taken; 2 wrong usage: an option, or
the kubeconfig.

Example: purser agent --node-name $(hostname) --kubeconfig /etc/kubernetes/kubelet.conf
"""


def agent(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "AgentSettings",
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the agent until it is told to stop."""
    import asyncio

    from purser.agent.driver_roots import driver_roots
    from purser.agent.nvml import Driver, open_driver
    from purser.agent.run import run
    from purser.cli.serving import configure_logs, serve
    from purser.kube import Client, ClusterConfig

    def find_driver() -> Driver:
        roots = driver_roots(settings.driver_root_file, settings.driver_roots, settings.host_root)
        return open_driver(library=settings.driver_library, driver_roots=roots, sysfs_root=settings.sysfs_root)

    configure_logs(log_level)
    reload = asyncio.Event()

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        driver = find_driver()
        try:
            async with Client(config, field_manager="purser-agent", user_agent="purser-agent") as client:
                await run(settings, client, driver, stop, reload=reload, find_driver=find_driver)
        finally:
            driver.close()

    serve(main, on_hangup=reload.set)
