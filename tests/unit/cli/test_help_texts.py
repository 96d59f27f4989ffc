"""Help texts in a terminal of 80 columns: nothing is divided that is to be copied."""

import re

import pytest
import typer
from typer.testing import CliRunner

from purser.cli import app
from purser.cli.help_texts import definitions

from .test_man_pages import COMMANDS

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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "free", "--gpus=x"), "'x' is not a whole number of 1 or more."),
        (("plan", "free", "--gpus=0"), "0 is not a whole number of 1 or more."),
        (("web", "--port=70000"), "70000 is not a whole number from 0 to 65535."),
        (("simulate", "--load=x"), "'x' is not a number from 1 to 1000."),
        (("agent", "run", "--node-name=n", "--slots=many"), "'many' is not a whole number."),
    ],
)
def test_a_value_that_is_not_the_number_is_named_in_plain_words(words: tuple[str, ...], says: str) -> None:
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
