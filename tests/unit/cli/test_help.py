"""Help shows how a command is typed and what its exit codes are."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from purser.cli import app, plugin
from purser.cli.groups import GROUPS

WITHOUT_EXIT_CODES = {"completion", "get", "version"}


def commands(of: Any, *words: str) -> Iterator[str]:
    """All that can be typed."""
    if not hasattr(of, "commands"):
        yield " ".join(words)
    for name, each in getattr(of, "commands", {}).items():
        yield from commands(each, *words, name)


@pytest.mark.parametrize("command", [*commands(typer.main.get_command(app)), "get", "lab"])
def test_help_has_an_example_and_exit_codes(command: str) -> None:
    text = " ".join(CliRunner().invoke(app, [*command.split(), "--help"]).stdout.split())
    assert re.search(f"Examples?: .*purser {command} ", text)
    if command not in WITHOUT_EXIT_CODES:
        assert text.count("Exit code: 0 ") == 1
        assert re.search("[;,] 1 ", text) or command == "webhook manifest"
        assert re.search("[;,] 2 wrong usage", text)


@pytest.mark.parametrize("of", [app, plugin], ids=["purser", "kubectl purser"])
def test_every_command_is_in_one_group_and_fits_into_a_line_of_80_columns(of: typer.Typer) -> None:
    there = set(typer.main.get_command(of).commands)
    grouped = [name for commands in GROUPS.values() for name in commands]
    assert sorted(grouped) == sorted(set(grouped))
    assert there <= set(grouped)
    lines = CliRunner().invoke(of, ["--help"], terminal_width=80).stdout.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in grouped]
    assert sorted(listed) == sorted(there)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--mode", "mig"), "invalid value 'mig' for --mode: must be shared or whole"),
        (
            ("--device-list-strategy", "cdi"),
            "option --device-list-strategy is cdi, but must be one of envvar, volume-mounts,",
        ),
        (("--slots", "0"), "invalid value 0 for slots: must be a number from 1 to 1000"),
        (("--kubeconfig", "/nowhere"), "cannot read kubeconfig /nowhere"),
    ],
    ids=["mode", "device list", "slots", "kubeconfig"],
)
def test_an_agent_with_malformed_options_ends_with_the_code_of_wrong_usage(words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["agent", "run", "--node-name=n", *words])
    assert done.exit_code == 2
    assert says in done.output
