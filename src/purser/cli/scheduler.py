"""`purser scheduler`: the webhook and extender servers."""

from typing import TYPE_CHECKING

from purser.cli.options import Context, Kubeconfig, LogLevelOption
from purser.cli.output import fail
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.scheduler.settings import SchedulerSettings

SETTINGS = "purser.scheduler.settings:SchedulerSettings"
"""Whose options the command has."""

HELP = """Serve Purser's admission webhook and scheduler extender.

The server runs beside a kube-scheduler with the profile purser-scheduler. The Helm chart sets up both. If the API
server does not answer, the server waits.

Exit code: 0 the server was stopped; 1 a port is in use, or a Secret does not contain a usable key; 2 wrong usage, such
as an invalid option or a file that cannot be used.

Example: purser scheduler --kubeconfig ~/.kube/config --webhook-url 127.0.0.1:8443
"""


def scheduler(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "SchedulerSettings",
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the scheduler until it is stopped."""
    import asyncio
    import gc

    from purser.cli.serving import configure_logs, serve

    configure_logs(log_level)

    from purser.cli.kernels import choose_kernels
    from purser.kube import ClusterConfig
    from purser.scheduler.keys import SigningKeyError
    from purser.scheduler.run import Addresses, run

    choose_kernels()

    def on_ready(_: Addresses) -> None:
        """What was listed stays: without this, each full collection would walk all of it, tens of milliseconds."""
        gc.collect()
        gc.freeze()

    async def main(stop: asyncio.Event) -> None:
        await run(settings, ClusterConfig.load(kubeconfig, context), stop, on_ready)

    try:
        serve(main)
    except SigningKeyError as error:
        fail(str(error))
