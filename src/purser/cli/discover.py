"""`purser discover`: tells the operator what kind of node this is."""

from pathlib import Path

from purser.cli.options import Context, HostRoot, Kubeconfig, LogLevelOption, NodeName, SysfsRoot
from purser.cli.serving import LogLevel

HELP = """Write to this node which GPUs, operating system and distribution of Kubernetes it has.

The operator runs it on nodes without node-feature-discovery, and on GPU nodes for the models of their cards.

Exit code: 0 it was told to stop; 1 it could not go on; 2 wrong usage: an option, or the kubeconfig.

Example: purser discover --node-name $(hostname) --kubeconfig /etc/kubernetes/kubelet.conf
"""


def discover(
    node_name: NodeName,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    host_root: HostRoot = Path("/"),
    sysfs_root: SysfsRoot = Path("/sys"),
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run until it is told to stop."""
    import asyncio

    from purser.agent.discovery import DiscoverySettings, run
    from purser.cli.serving import configure_logs, serve
    from purser.kube import Client, ClusterConfig

    settings = DiscoverySettings(node_name, host_root, sysfs_root)
    configure_logs(log_level)

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        async with Client(config, field_manager="purser-discovery", user_agent="purser-discovery") as client:
            await run(settings, client, stop)

    serve(main)
