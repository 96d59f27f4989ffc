"""The command `purser`: one module per command, no logic of its own.

Here: options, help texts, tables, exit codes. Not here: anything that decides or talks to a server; the rooms below do
that, and are imported inside the commands, so that `purser --help` stays quick.
"""

import atexit
import gc
import os
import sys
from typing import Annotated

import typer

from purser.cli import (
    agent,
    backtest,
    clean_up,
    completion,
    conformance,
    cordon,
    discover,
    get,
    lab,
    man_pages,
    mcp,
    mig_worker,
    operator,
    plan,
    replay,
    report,
    scheduler,
    simulate,
    snapshot,
    top,
    version,
    web,
    webhook,
    why,
)
from purser.cli.arguments import as_kubectl_arguments
from purser.cli.from_settings import settings_command
from purser.cli.groups import GroupedCommands
from purser.cli.help_texts import format_help_texts
from purser.cli.output import FAILED, MISUSED

_OPTIONAL_PACKAGES = ("purser.backtest", "purser.lab", "purser.simulator")
"""What Purser's image does not have (deploy/image/Dockerfile)."""

format_help_texts()
app = typer.Typer(
    name="purser",
    cls=GroupedCommands,
    help="The GPU control plane for Kubernetes: decides which pod gets which GPU, or which share of a GPU.\n\n"
    "Example: purser lab",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(lab.app, name="lab")
app.add_typer(agent.app, name="agent")
settings_command(app, "scheduler", scheduler.SETTINGS, help=scheduler.HELP)(scheduler.scheduler)
app.command("simulate", help=simulate.HELP)(simulate.simulate)
app.command("replay", help=replay.HELP)(replay.replay)
app.command("backtest", help=backtest.HELP)(backtest.backtest)
settings_command(app, "discover", discover.SETTINGS, help=discover.HELP)(discover.discover)
settings_command(app, "mig-worker", mig_worker.SETTINGS, help=mig_worker.HELP)(mig_worker.mig_worker)
app.add_typer(operator.app, name="operator")
app.add_typer(get.app, name="get")
app.command("why", help=why.HELP)(why.why)
app.command("top", help=top.HELP)(top.top)
app.command("web", help=web.HELP)(web.web)
app.command("snapshot", help=snapshot.HELP)(snapshot.snapshot)
app.command("mcp", help=mcp.HELP)(mcp.mcp)
app.add_typer(cordon.cordon_app, name="cordon")
app.add_typer(cordon.uncordon_app, name="uncordon")
app.add_typer(plan.app, name="plan")
app.add_typer(report.app, name="report")
app.add_typer(webhook.app, name="webhook")
app.add_typer(conformance.app, name="conformance")
app.command("clean-up", help=clean_up.HELP)(clean_up.clean_up)
app.command("completion", help=completion.HELP)(completion.completion)
app.command("man-pages", help=man_pages.HELP)(man_pages.man_pages)
app.command("version", help=version.HELP)(version.version)


@app.callback()
def purser(
    version_wanted: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=version.print_version),
    ] = False,
) -> None:
    """Options of the command itself."""


plugin = typer.Typer(
    name="kubectl purser",
    cls=GroupedCommands,
    help="Purser's read-only commands.\n\nExample: kubectl purser why POD",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
plugin.add_typer(get.app, name="get")
plugin.command("why", help=why.HELP)(why.why)
plugin.command("top", help=top.HELP)(top.top)
plugin.command("web", help=web.HELP)(web.web)
plugin.command("snapshot", help=snapshot.HELP)(snapshot.snapshot)
plugin.command("mcp", help=mcp.HELP)(mcp.mcp)
plugin.add_typer(report.app, name="report")
plugin.command("simulate", help=simulate.HELP)(simulate.simulate)
plugin.command("replay", help=replay.HELP)(replay.replay)
plugin.command("backtest", help=backtest.HELP)(backtest.backtest)
plugin.add_typer(plan.reading_app, name="plan")
plugin.command("version", help=version.HELP)(version.version)


def kubectl_plugin() -> None:
    """The entry point of `kubectl purser`: kubectl runs `kubectl-purser` of the PATH."""
    _run(plugin, "kubectl purser")


def kubectl_completion() -> None:
    """The entry point of what kubectl runs to complete `kubectl purser`: `kubectl_complete-purser` of the PATH."""
    completion.answer_kubectl(plugin)


def main() -> None:
    """The entry point of the command."""
    completion.prepare_completion()
    _run(app, "purser")


def _run(app: typer.Typer, name: str) -> None:
    """``name``: as it is typed, whatever the file is called that was started."""
    # Of the CPU that a command takes to start and to end, a third went into looking for cycles among what it imports.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    try:
        try:
            app(as_kubectl_arguments(sys.argv[1:]), prog_name=name)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL_PACKAGES:
            raise
        print(
            f"purser: {error.name} is not installed: Purser's image does not include this command. Run it where you "
            "installed Purser with pip.",
            file=sys.stderr,
        )
        sys.exit(MISUSED)
    except OSError as error:  # of standard output: who reads it has gone (`| head`), or its disk is full
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter writes the rest when it ends
        sys.exit(FAILED if isinstance(error, BrokenPipeError) else f"purser: {error}")
