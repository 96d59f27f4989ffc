"""Top-level help in groups: what to look at, what to plan with, what to operate, the lab, and what runs in pods."""

from typing import Any

import typer.core

GROUPS: dict[str, dict[str, str]] = {
    "Look": {
        "get": "List GPUs, grants, nodes or namespaces as they are counted.",
        "top": "Watch nodes, GPUs, and pods that hold them or wait.",
        "why": "Explain why a pod waits, or why it was placed where it is.",
        "snapshot": "Write what decisions need of a cluster to a file.",
        "mcp": "Answer assistants by the Model Context Protocol.",
        "report": "Report what GPUs were used for, from Prometheus.",
    },
    "Plan and compare": {
        "plan": "Free whole GPUs: which pods would have to move.",
        "simulate": "Compare placement policies on a list of nodes and pods.",
        "backtest": "Replay a cluster's past with other policies.",
        "replay": "Make the decisions of a decision log again.",
    },
    "Operate": {
        "cordon": "Keep new pods off GPUs.",
        "uncordon": "Let new pods have GPUs again.",
        "operator": "Roll out the GPU stack, upgrade it, import, uninstall.",
        "webhook": "Print or install the webhook configurations.",
        "clean-up": "Remove what an uninstalled Purser left behind.",
    },
    "Try and test": {
        "lab": "Start a cluster with simulated GPUs on this machine.",
        "conformance": "Check a device plugin against kubelet's interface.",
    },
    "Run by pods": {
        "agent": "Serve a node's GPUs to kubelet; check a node.",
        "scheduler": "Serve the admission webhook and scheduler extender.",
        "mig-worker": "Apply MIG layouts on this node for the operator.",
        "discover": "Report this node's GPUs and system to the operator.",
    },
    "Other": {
        "completion": "Print a script that completes commands in your shell.",
        "man-pages": "Write a manual page for each command.",
        "version": "Print the versions of Purser and Python.",
    },
}
"""Of each group the commands, with what `purser --help` says of them on a terminal of 80 columns."""

_WIDEST = max(len(name) for commands in GROUPS.values() for name in commands)


MEANT = {
    "ns": "namespaces",
    "quotas": "namespaces",
    "pod": "grants",
    "pods": "grants",
    "cards": "gpus",
    "devices": "gpus",
}
"""What people type, and the command of `purser get` that shows it."""


class PluralCommands(typer.core.TyperGroup):
    """`purser get`: ``gpu`` is ``gpus``, as kubectl takes both; for other words it says which command is meant."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name, or of its plural."""
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, f"{cmd_name}s")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        if args and not ctx.resilient_parsing and (meant := MEANT.get(args[0])):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{meant}'?")
        return super().resolve_command(ctx, args)


class GroupedCommands(typer.core.TyperGroup):
    """A command whose help lists the commands below it by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group that has commands here."""
        for title, commands in GROUPS.items():
            rows = [(name.ljust(_WIDEST), text) for name, text in commands.items() if name in self.commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
