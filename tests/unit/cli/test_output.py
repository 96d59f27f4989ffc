"""Tables, JSON and YAML of commands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from purser.cli.output import Column, DocumentFormat, OutputFormat, dump, fail, show

pytestmark = pytest.mark.processes

COLUMNS: list[Column[tuple[str, int | None]]] = [
    Column("NAME", lambda row: row[0]),
    Column("COUNT", lambda row: row[1]),
    Column("TWICE", lambda row: (row[1] or 0) * 2, wide=True),
]
ROWS = [("a", 1), ("longer", None)]


def document(row: tuple[str, int | None]) -> dict[str, object]:
    return {"name": row[0], "count": row[1]}


def test_a_table_is_aligned_and_shows_a_dash_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, OutputFormat.TABLE, empty="none", document=document)
    assert capsys.readouterr().out == "NAME     COUNT\na        1\nlonger   -\n"


def test_wide_shows_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, COLUMNS, OutputFormat.WIDE, empty="none", document=document)
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "1", "2"]


def test_an_empty_table_says_so_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    show([], COLUMNS, OutputFormat.TABLE, empty="No rows.", document=document)
    assert capsys.readouterr() == ("", "No rows.\n")


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "none"])
@pytest.mark.parametrize(("output", "load"), [(OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)])
def test_scripts_get_documents(
    output: OutputFormat, load: object, rows: list[tuple[str, int | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    show(rows, COLUMNS, output, empty="none", document=document)
    assert load(capsys.readouterr().out) == [document(row) for row in rows]  # type: ignore[operator]


@pytest.mark.parametrize(("form", "load"), [(DocumentFormat.JSON, json.loads), (DocumentFormat.YAML, yaml.safe_load)])
def test_what_is_no_utf_8_is_shown_all_the_same(
    form: DocumentFormat, load: object, capsys: pytest.CaptureFixture[str]
) -> None:
    dump({"file": os.fsdecode(b"/etc/cdi/\xff.json")}, form)
    assert load(capsys.readouterr().out) == {"file": "/etc/cdi/?.json"}  # type: ignore[operator]


def test_numbers_that_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    dump({"a": [float("inf"), (float("nan"), 1.5)]}, DocumentFormat.JSON)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"a": [None, [None, 1.5]]}


@pytest.mark.parametrize(
    ("text", "said"),
    [("it is so", "it is so"), ("no YAML:\n  {{{\n   ^\n", "no YAML: {{{ ^")],
    ids=["own words", "words of others"],
)
def test_a_failure_is_one_line_and_an_exit_code(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised:
        fail(text, 2)
    assert raised.value.exit_code == 2
    assert capsys.readouterr() == ("", f"purser: {said}\n")


def test_one_thing_is_printed_as_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    dump({"version": "1", "y": "4123e05"}, DocumentFormat.YAML)
    assert capsys.readouterr().out == "version: '1'\n'y': '4123e05'\n"


def test_what_others_wrote_does_not_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show([("A100\x1b[2J\x9b1m\nb", 1)], COLUMNS, OutputFormat.TABLE, empty="none", document=document)
    with pytest.raises(typer.Exit):
        fail("no GPU \x1b]0;title\x07")
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err) == (2, "purser: no GPU \ufffd]0;title\ufffd\n")
    assert not {"\x1b", "\x9b", "\x07"} & set(said.out + said.err)


def test_output_that_nobody_takes_is_no_traceback() -> None:
    program = [sys.executable, "-c", "from purser.cli import main; main()", "version"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    gone, output = os.pipe()
    os.close(gone)
    with os.fdopen(output, "w") as pipe, Path("/dev/full").open("w") as full:
        found = [subprocess.run(program, stdout=to, stderr=subprocess.PIPE, env=environment) for to in (pipe, full)]
    assert [(each.returncode, each.stderr) for each in found] == [
        (1, b""),
        (1, b"purser: [Errno 28] No space left on device\n"),
    ]
