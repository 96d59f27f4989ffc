"""`purser man-pages`: a manual page for each command, made of the same texts as its ``--help``."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from purser.cli.help_texts import definitions, paragraphs, usage_words
from purser.cli.output import fail, os_error_text
from purser.core.wording import counted

HELP = """Write a manual page for each command.

For example, man purser-plan-free then shows the text of purser plan free --help.

Exit code: 0 the pages are written; 1 the pages cannot be written to the folder; 2 wrong usage.

Example: purser man-pages

Example: purser man-pages build/man1
"""

_CHARACTERS = {
    "\\": r"\(rs",
    "-": r"\-",
    "'": r"\(aq",
    "`": r"\(ga",
    "^": r"\(ha",
    "~": r"\(ti",
}
"""What roff would otherwise take for its own, or print as a typographer's: the hyphen of an option cannot be copied."""

_AS_WRITTEN = (".ad l", ".nh")
"""Commands are to be copied: no spaces are added to a line to fill it, and no word is divided."""


def man_pages(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="Folder for the pages. Default: share/man/man1 next to purser's bin folder, where man looks for "
            "pages.",
        ),
    ] = None,
) -> None:
    """Write them."""
    target = folder or Path(sys.argv[0]).absolute().parent.parent / "share" / "man" / "man1"
    root = context.find_root()
    found = list(_pages(root.command, str(root.info_name)))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in found:
            (target / f"{name}.1").write_text(text, encoding="ascii")
    except OSError as error:
        fail(f"cannot write the pages: {os_error_text(error)}. Use another folder: purser man-pages FOLDER")
    print(f"{counted(len(found), 'page')} written to {target}")


def _pages(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    """Names and texts of a command's page and of those of the commands below it."""
    context = command.make_context(name, [], parent, resilient_parsing=True)
    page = _Page(context.command_path)
    # A command that stands for another until it is called (purser.cli.from_settings) is not the context's.
    context.command.format_help(context, page)
    below: dict[str, Any] = getattr(command, "commands", {})
    related = [f"{context.command_path} {each}" for each in below]
    page.write_related([*([parent.command_path] if parent else []), *related])
    yield page.name, page.text()
    for each, other in below.items():
        yield from _pages(other, each, context)


class _Page:
    """What a command writes its help to in the place of typer's formatter: man(7) instead of text."""

    width = 1_000
    """In characters: what a list says of a command is cut to that. man breaks lines by itself."""

    def __init__(self, command: str) -> None:
        self.name = command.replace(" ", "-")
        self._summary = ""
        self._lines: list[str] = []

    def text(self) -> str:
        """The whole page. It has no date, so that the same version of Purser always writes the same."""
        from purser import __version__

        title = f'.TH {_roff(self.name.upper())} 1 "" "Purser {__version__}" "Purser"'
        name = f"{_roff(self.name)} \\- {_roff(self._summary)}"
        return "\n".join([title, *_AS_WRITTEN, ".SH NAME", name, *self._lines]) + "\n"

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self._lines += [".SH SYNOPSIS", f".B {_roff(prog)}", _roff(usage_words(args)), ".SH DESCRIPTION"]

    def write_paragraph(self) -> None:
        """Each paragraph begins with its own macro."""

    def write_text(self, text: str) -> None:
        for paragraph in paragraphs(text, self.width):
            if paragraph.startswith("\b\n"):
                _, head, *commands = paragraph.split("\n")
                self._lines += [".PP", _roff(head), ".nf", *map(_roff, commands), ".fi"]
                continue
            line = " ".join(paragraph.split())
            self._summary = self._summary or line.removesuffix(".")
            self._lines += [".PP", _roff(line)]

    def write_dl(self, rows: Iterable[tuple[str, str]]) -> None:
        for term, text in definitions(rows):
            self._lines += [".TP", f"\\fB{_roff(term.strip())}\\fR", _roff(" ".join(text.split()))]

    def write_related(self, commands: Iterable[str]) -> None:
        names = [f".BR {_roff(each.replace(' ', '-'))} (1)" for each in commands]
        self._lines += [".SH SEE ALSO", ",\n".join(names)] if names else []

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self._lines.append(f".SH {_roff(name.upper())}")
        yield

    @contextmanager
    def indentation(self) -> Iterator[None]:
        yield


def _roff(text: str) -> str:
    """A line that roff prints as it is."""
    escaped = "".join(_CHARACTERS.get(each, each if each.isascii() else f"\\[u{ord(each):04X}]") for each in text)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped
