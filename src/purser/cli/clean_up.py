"""`purser clean-up`: what a release of the chart leaves behind."""

from typing import Annotated

import typer

from purser.cli.cluster_source import answer_of
from purser.cli.options import Context, Kubeconfig
from purser.cli.serving import LogLevel
from purser.core.names import DEFAULT_NAMESPACE

HELP = """Remove what Purser left in a cluster after Helm has uninstalled Purser.

The command removes what agents wrote to nodes, kube-scheduler's lease, the certificates and, once no pod has a grant,
the keys that sign grants. The chart runs this command after `helm uninstall`.

Exit code: 0 nothing is left, except keys that the command named; 1 the cluster did not answer or refused a request, or
Purser's pods did not stop in time; 2 wrong usage, or a kubeconfig that cannot be used.

Example: purser clean-up --namespace purser-system
"""


def clean_up(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the Helm release.")] = DEFAULT_NAMESPACE,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for Purser's pods to stop.")] = 60.0,
) -> None:
    """Remove it, and print each thing."""
    from purser.cli.serving import configure_logs
    from purser.kube import Client, ClusterConfig
    from purser.operator.chart_hooks import clean_up as remove

    async def main() -> None:
        async with Client(ClusterConfig.load(kubeconfig, context), user_agent="purser") as client:
            await remove(client, namespace, timeout_s=timeout, say=print)

    configure_logs(LogLevel.ERROR)
    answer_of(main())
