"""`purser agent`: runs the node's device plugin, checks what a node has for it."""

from typing import TYPE_CHECKING

import typer

from purser.cli.from_settings import settings_command
from purser.cli.groups import CommandGroup
from purser.cli.options import Context, Kubeconfig, LogLevelOption, OutputOption
from purser.cli.output import FAILED, Column, OutputFormat, show
from purser.cli.serving import LogLevel

if TYPE_CHECKING:
    from purser.agent.nvml import Driver
    from purser.agent.settings import AgentSettings

SETTINGS = "purser.agent.settings:AgentSettings"
"""Whose options the agent has."""

CHECK_SETTINGS = "purser.agent.settings:CheckSettings"
"""The same but for the node's name."""

app = typer.Typer(
    cls=CommandGroup,
    name="agent",
    help="Serve a node's GPUs to kubelet, or check a node.\n\nExample: purser agent check --node-name $(hostname)",
    no_args_is_help=True,
    rich_markup_mode=None,
)

RUN_HELP = """Serve one node: kubelet's device plugins, health checks and metrics.

The agent runs as root on every node with GPUs and is started by the Helm chart's DaemonSet. On SIGHUP, the agent
enumerates the GPUs again. If the driver, kubelet or the API server is unavailable, the agent waits, and reports the
reason in its log and at /readyz.

Exit code: 0 the agent was stopped by SIGTERM or SIGINT; 1 the agent could not continue, because a port is in use or
another agent serves the node; 2 wrong usage, such as an invalid option or kubeconfig.

Example: purser agent run --node-name $(hostname) --kubeconfig /etc/kubernetes/kubelet.conf
"""

CHECK_HELP = """Check whether this node can serve its GPUs, what is missing, and how to fix it.

The command checks the driver, the GPUs, the container runtime, CDI, kubelet's sockets and the enforcement of shares.
It does not change anything and does not contact the API server. Use the same options as for purser agent run, so that
the command looks in the same places.

Exit code: 0 the GPUs can be served; 1 a check failed, so at least one GPU cannot be served; 2 wrong usage.

Example: purser agent check

Example: kubectl exec -n purser-system ds/purser-agent -- purser agent check --host-root /host --driver-root /host
"""


@settings_command(app, "run", SETTINGS, help=RUN_HELP)
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    *,
    settings: "AgentSettings",
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the agent until it is stopped."""
    import asyncio

    from purser.cli.serving import configure_logs, serve

    configure_logs(log_level)

    from purser.agent.host.node_lock import held, lock_node
    from purser.agent.run import run as run_agent
    from purser.kube import Client, ClusterConfig

    reload = asyncio.Event()

    async def main(stop: asyncio.Event) -> None:
        config = ClusterConfig.load(kubeconfig, context)
        with held(await lock_node(settings, stop)):
            if not stop.is_set():
                await serve_node(config, stop)

    async def serve_node(config: ClusterConfig, stop: asyncio.Event) -> None:
        driver = _driver(settings)
        try:
            async with Client(config, field_manager="purser-agent", user_agent="purser-agent") as client:
                await run_agent(settings, client, driver, stop, reload=reload, find_driver=lambda: _driver(settings))
        finally:
            driver.close()

    serve(main, on_hangup=reload.set)


@settings_command(app, "check", CHECK_SETTINGS, help=CHECK_HELP, reads_paths=False)
def check(
    *,
    settings: "AgentSettings",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print what was found on this node."""
    import asyncio

    import msgspec

    from purser.agent.checking import CheckResult, CheckState, check_node

    def document(each: CheckResult) -> dict[str, str]:
        row: dict[str, str] = msgspec.to_builtins(each)
        return row

    found = asyncio.run(check_node(settings, lambda: _driver(settings)))
    columns: list[Column[CheckResult]] = [
        Column("CHECK", lambda each: each.check),
        Column("STATE", lambda each: each.state.value),
        Column("FOUND", lambda each: each.found),
        Column("WHAT TO DO", lambda each: each.advice, wide=True),
    ]
    show(found, columns, output, empty="", document=document)
    if output is OutputFormat.TABLE:
        for advice in dict.fromkeys(each.advice for each in found if each.advice):
            print(f"\n{', '.join(dict.fromkeys(each.check for each in found if each.advice == advice))}: {advice}")
    if any(each.state is CheckState.FAILED for each in found):
        raise typer.Exit(FAILED)


def _driver(settings: "AgentSettings") -> "Driver":
    from purser.agent.inventory.driver_roots import driver_roots
    from purser.agent.nvml import open_driver

    roots = driver_roots(settings.driver_root_file, settings.driver_roots, settings.host_root)
    return open_driver(library=settings.driver_library, driver_roots=roots, sysfs_root=settings.sysfs_root)
