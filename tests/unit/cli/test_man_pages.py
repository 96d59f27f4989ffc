"""`purser man-pages` has all that the commands' help has, and man and groff take it."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from purser.cli import app

pytestmark = pytest.mark.processes

BIN = Path(sys.executable).parent


def commands(of: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """All that have a help, groups included."""
    yield words
    for name, each in getattr(of, "commands", {}).items():
        yield from commands(each, *words, name)


COMMANDS = list(commands(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "man1"
    done = CliRunner().invoke(app, ["man-pages", str(folder)], prog_name="purser")
    assert done.output == f"{len(COMMANDS)} pages written to {folder}\n"
    return folder


def tool(name: str) -> str:
    """Its path. The gate installs it where it can."""
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def test_every_command_has_a_page(pages: Path) -> None:
    assert {path.name for path in pages.iterdir()} == {"-".join(("purser", *each)) + ".1" for each in COMMANDS}


@pytest.mark.gate
def test_groff_prints_every_word_of_every_help_and_warns_of_nothing(pages: Path) -> None:
    command = [tool("groff"), "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=1000n", *map(str, pages.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    headings = re.compile(r"^(Usage:|\w[\w ]*:$)", re.MULTILINE)
    wanted = Counter(word for each in COMMANDS for word in headings.sub("", help_of(each)).split())
    assert wanted - Counter(done.stdout.split()) == Counter()


def help_of(command: tuple[str, ...]) -> str:
    """In lines that are wide enough for all that they say."""
    return CliRunner().invoke(app, [*command, "--help"], prog_name="purser", terminal_width=1_000).stdout


def test_man_finds_the_pages_of_the_purser_that_is_on_the_path(tmp_path: Path) -> None:
    """A folder as a virtual environment is one."""
    man, own = tool("man"), tmp_path / "bin"
    own.mkdir()
    (own / "purser").symlink_to(BIN / "purser")
    environment = {**os.environ, "PATH": f"{own}:{os.environ['PATH']}"}
    environment.pop("MANPATH", None)
    subprocess.run(["purser", "man-pages"], env=environment, check=True, stdout=subprocess.DEVNULL)
    found = subprocess.run([man, "--where", "purser-plan-free"], env=environment, capture_output=True, text=True)
    assert found.stdout == f"{tmp_path}/share/man/man1/purser-plan-free.1\n"


def test_where_they_cannot_be_written_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["man-pages", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert re.fullmatch(r"purser: cannot write the pages: .*/file: File exists\. Use another folder: .*\n", done.output)
