"""`purser discover`: publishes facts of this node for the operator."""

from typing import TYPE_CHECKING

from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.discovery import DiscoverySettings

SETTINGS = "purser.agent.discovery:DiscoverySettings"
"""Whose options the command has."""

HELP = """Write to this node which GPUs, operating system and distribution of Kubernetes it has.

The operator runs it on nodes without node-feature-discovery, and on GPU nodes for the models of their GPUs.

Exit code: 0 it was stopped; 1 it could not go on; 2 wrong usage: an option, or the kubeconfig.

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

    from purser.agent.discovery import run
    from purser.kube import Client, ClusterConfig

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        async with Client(config, field_manager="purser-discovery", user_agent="purser-discovery") as client:
            await run(settings, client, stop)

    serve(main)
