"""Whether a container's arguments are ones that the command `purser` takes."""

import re

import typer.main

from purser.cli import app


def assert_parses(args: list[str]) -> None:
    """Every flag belongs to the command, or the command in a command, that the arguments begin with."""
    command = typer.main.get_command(app)
    rest = list(args)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
    assert not hasattr(command, "commands"), f"{args[0]} is not a command"
    # Options made from settings are there once the command is called.
    command = command.make_context("purser", [], resilient_parsing=True).command  # type: ignore[assignment]
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    given = {found.group() if (found := re.match(r"--[a-z-]+", argument)) else argument for argument in rest}
    assert given <= flags, f"{args} has {given - flags}, which the command does not know"
