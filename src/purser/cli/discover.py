"""`purser discover`: publishes facts of this node for the operator."""

from typing import TYPE_CHECKING

from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.host.discovery import DiscoverySettings

SETTINGS = "purser.agent.host.discovery:DiscoverySettings"
"""Whose options the command has."""

HELP = """Write this node's GPUs, operating system and Kubernetes distribution to an annotation of the node.

The operator runs this on nodes without node-feature-discovery, and on GPU nodes to find the GPU models.

Exit code: 0 the command was stopped; 1 the command could not continue; 2 wrong usage, such as an invalid option or
kubeconfig.

Example: purser discover --node-name $(hostname) --kubeconfig /etc/kubernetes/kubelet.conf
"""


def discover(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "DiscoverySettings",
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run until it is stopped."""
    import asyncio

    from purser.cli.serving import configure_logs, serve

    configure_logs(log_level)

    from purser.agent.host.discovery import run
    from purser.kube import Client, ClusterConfig

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        async with Client(config, field_manager="purser-discovery", user_agent="purser-discovery") as client:
            await run(settings, client, stop)

    serve(main)
