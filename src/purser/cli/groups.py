"""Top-level help in groups: what to look at, what to plan with, what to operate, the lab, and what runs in pods."""

from typing import Any

import typer.core

GROUPS: dict[str, dict[str, str]] = {
    "Look": {
        "get": "List GPUs, grants, nodes or namespaces.",
        "top": "Watch nodes, GPUs, and the pods that hold or wait for GPUs.",
        "web": "Show the fleet in a browser, updated live.",
        "why": "Explain why a pod waits, or why it runs on its node.",
        "snapshot": "Save the cluster state that scheduling decisions need.",
        "mcp": "Serve AI assistants over the Model Context Protocol.",
        "report": "Report GPU usage by namespace, from Prometheus.",
    },
    "Plan and compare": {
        "plan": "Plan which pods to move in order to free whole GPUs.",
        "simulate": "Compare placement policies in a simulated cluster.",
        "backtest": "Replay a cluster's history with other policies.",
        "replay": "Repeat the decisions in a decision log.",
    },
    "Operate": {
        "cordon": "Keep new pods off GPUs.",
        "uncordon": "Let new pods use GPUs again.",
        "operator": "Roll out, upgrade, import or uninstall the GPU stack.",
        "webhook": "Print or install the webhook configurations.",
        "clean-up": "Remove what Purser left in the cluster after Helm uninstalled it.",
    },
    "Try and test": {
        "lab": "Start a cluster with simulated GPUs on this machine.",
        "conformance": "Check a device plugin against kubelet's API.",
    },
    "Run by pods": {
        "agent": "Serve a node's GPUs to kubelet, or check a node.",
        "scheduler": "Serve the admission webhook and scheduler extender.",
        "mig-worker": "Apply MIG layouts on this node for the operator.",
        "discover": "Report this node's GPUs and system to the operator.",
    },
    "Other": {
        "completion": "Print a shell completion script.",
        "man-pages": "Write a manual page for each command.",
        "version": "Print the versions of Purser and Python.",
    },
}
"""Of each group the commands, with what `purser --help` says of them on a terminal of 80 columns."""

_ALL = 1000
"""Characters of a sentence, at most."""
_MAX_NAME_WIDTH = max(len(name) for commands in GROUPS.values() for name in commands)


INTENDED_COMMANDS = {
    "ns": "namespaces",
    "quotas": "namespaces",
    "pod": "grants",
    "pods": "grants",
    "cards": "gpus",
    "devices": "gpus",
}
"""What people type, and the command of `purser get` that shows it."""


class CommandGroup(typer.core.TyperGroup):
    """A command whose help has all that the first sentence of each command below it says."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write them; typer would cut the sentences."""
        commands = [(name, command) for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))]
        rows = [(name, command.get_short_help_str(_ALL)) for name, command in commands if not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class PluralCommands(CommandGroup):
    """`purser get`: ``gpu`` is ``gpus``, as kubectl takes both; for other words it says which command is meant."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or of its plural."""
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, f"{cmd_name}s")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        if args and not ctx.resilient_parsing and (meant := INTENDED_COMMANDS.get(args[0])):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{meant}'?")
        return super().resolve_command(ctx, args)


class GroupedCommands(typer.core.TyperGroup):
    """A command whose help lists the commands below it by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group that has commands here."""
        for title, commands in GROUPS.items():
            rows = [(name.ljust(_MAX_NAME_WIDTH), text) for name, text in commands.items() if name in self.commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
