"""Help shows how a command is typed and what its exit codes are; in a terminal of 80 columns nothing is divided that is
to be copied."""

import re

import pytest
import typer
from typer.testing import CliRunner

from purser.cli import app, plugin
from purser.cli.groups import GROUPS
from purser.cli.help_texts import definitions

from .test_man_pages import COMMANDS

LEAVES = {each for each in COMMANDS if not any(other[:-1] == each for other in COMMANDS if other)}
AGENT = ("agent", "run", "--node-name=n")
TYPERS = re.compile(r"<(str|path|int|float)[ >]|<=x<=|x>=|\\{[A-Z]")


def help_of(command: tuple[str, ...]) -> str:
    return CliRunner().invoke(app, [*command, "--help"], prog_name="purser", terminal_width=80).stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_that_can_be_pasted_and_no_word_of_typers_own(command: tuple[str, ...]) -> None:
    text = help_of(command)
    _, found, examples = re.split(r"^  (Examples?):\n", text, maxsplit=1, flags=re.MULTILINE)
    assert found
    lines = examples.split("\n\n")[0].splitlines()
    assert all(line.startswith("    ") for line in lines)
    assert " ".join(("purser", *command)) in " ".join(examples.split())
    if command in LEAVES - {("completion",), ("get",), ("version",)}:
        after = " ".join(text.split())
        assert after.count("Exit code: 0 ") == 1
        assert re.search("[;,] 1 ", after) or command == ("webhook", "manifest")
        assert re.search("[;,] 2 wrong usage", after)
    assert TYPERS.findall(text) == []
    # No option is divided at one of its hyphens; what kubectl calls an object may end with one.
    assert re.findall(r"--[a-z-]*-\n", text) == []
    assert "..." not in text.partition("Commands:")[2]


def test_commands_that_are_too_long_are_continued_before_an_option() -> None:
    text = help_of(("simulate",))
    assert max(map(len, text.splitlines())) <= 80
    joined = text.replace(" \\\n     ", "")
    assert (
        "purser simulate --nodes nodes.csv --pods pods.csv --policy fragmentation --policy best-fit --seed 1" in joined
    )


def test_typer_makes_all_contexts_of_the_class_that_is_given_the_formatter() -> None:
    command = typer.main.get_command(app)
    assert (
        command.make_context("purser", [], resilient_parsing=True).formatter_class.__module__ == "purser.cli.help_texts"
    )


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
        (("plan", "free", "--gpus=x"), "'x' is invalid: must be a whole number, 1 or more."),
        (("plan", "free", "--gpus=0"), "0 is invalid: must be a whole number, 1 or more."),
        (("web", "--port=70000"), "70000 is invalid: must be a whole number from 0 to 65535."),
        (("simulate", "--load=x"), "'x' is invalid: must be a number from 1 to 1000."),
        (("simulate", "--demo", "--load=nan"), "invalid value nan for --load: must be a percentage from 1 to 1000"),
        ((*AGENT, "--slots=many"), "'many' is invalid: must be a whole number."),
        ((*AGENT, "--slots=0"), "invalid value 0 for slots: must be a number from 1 to 1000"),
        ((*AGENT, "--mode=mig"), "invalid value 'mig' for --mode: must be shared or whole"),
        (
            (*AGENT, "--device-list-strategy=cdi"),
            "option --device-list-strategy is cdi, but must be one of envvar, volume-mounts,",
        ),
        ((*AGENT, "--kubeconfig=/nowhere"), "cannot read kubeconfig /nowhere"),
    ],
)
def test_a_value_that_cannot_be_taken_is_named_in_plain_words(words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output


def test_an_option_that_is_off_is_shown_by_what_turns_it_on() -> None:
    rows = [
        ("--taint / --no-taint", "Taint it.  [default: no-taint]"),
        ("--taint / --no-taint", "Taint it.  [env var: TAINT; default: no-taint]"),
        ("--stamp / --no-stamp", "Stamp it.  [default: stamp]"),
        ("--gds / --no-gds", "Whether to."),
    ]
    assert list(definitions(rows)) == [
        ("--taint", "Taint it."),
        ("--taint", "Taint it.  [env var: TAINT]"),
        ("--stamp / --no-stamp", "Stamp it.  [default: on]"),
        ("--gds / --no-gds", "Whether to."),
    ]
    assert "--no-taint-nodes" not in help_of(("agent", "run"))
