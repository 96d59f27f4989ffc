"""Help texts as a terminal shows them: options are not divided at their hyphens, and examples can be copied. And what
is said of a value that is not the number that an option takes."""

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import typer.core

_HYPHEN = "\N{NON-BREAKING HYPHEN}"
"""In the place of each hyphen while lines are broken."""
_INDENT = "  "
_METAVARS = {"<str>": "TEXT", "<path>": "PATH", "<int>": "N", "<int range>": "N", "<float>": "N", "<float range>": "N"}
"""What typer calls the value of an option that says nothing else, and what people call it."""
_RANGES = (
    (re.compile(r"([0-9.]+)<=x<=2147483647"), r"\1 or more"),
    (re.compile(r"([0-9.]+)<=x<=([0-9.]+)"), r"\1 to \2"),
    (re.compile(r"x>=([0-9.]+)"), r"\1 or more"),
)
"""Of numbers."""
_SWITCH = re.compile(r"--([a-z-]+) / --no-\1")
"""Of an option that is on or off."""

_Context = typer.core.TyperCommand.context_class
_Formatter = _Context.formatter_class
# Of the click that typer uses: some versions of typer depend on it, others contain it.
_types: Any = importlib.import_module(".types", _Context.__module__.rpartition(".")[0])


class HelpFormatter(_Formatter):  # type: ignore[misc, valid-type]  # typer does not export the type
    """In the place of typer's own."""

    def write(self, string: str) -> None:
        """Take a line that is broken where it will be."""
        super().write(string.replace(_HYPHEN, "-"))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Take the words that a command takes."""
        super().write_usage(prog, usage_words(args), prefix)

    def write_text(self, text: str) -> None:
        """Take paragraphs; each that begins with *Example* has commands."""
        shown = paragraphs(text, self.width - self.current_indent)
        super().write_text("\n\n".join(shown).replace("-", _HYPHEN))

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Take options or commands, each with what it is for."""
        shown = [(term, text.replace("-", _HYPHEN)) for term, text in definitions(rows)]
        super().write_dl(shown, col_max, col_spacing)


def format_help_texts() -> None:
    """Let all commands use it. Typer makes contexts of a command by itself, all of this one class, and types of
    numbers."""
    _Context.formatter_class = HelpFormatter
    for kind in (_types.IntParamType, _types.IntRange, _types.FloatParamType, _types.FloatRange):
        kind.fail = _fail_number  # typer has no other place for the words


def _fail_number(kind: Any, message: str, param: Any = None, ctx: Any = None) -> NoReturn:
    """In the place of typer's ``'x' is not a valid int range.`` and ``0 is not in the range x>=1.``"""
    value = message.partition(" is not ")[0]
    what = "a whole number" if isinstance(kind, _types.IntParamType) else "a number"
    raise typer.BadParameter(f"{value} is invalid: must be {what}{_bounds(kind)}.", ctx, param)


def _bounds(kind: Any) -> str:
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None else f", {low} or more"


def usage_words(args: str) -> str:
    """As kubectl writes them, without typer's braces."""
    return args.replace("{", "").replace("}", "")


def definitions(rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Options or commands, each with what it is for."""
    switched = (_without_negation(term, text) for term, text in rows)
    return ((_with_metavar(term), _with_range(text)) for term, text in switched)


def _without_negation(term: str, text: str) -> tuple[str, str]:
    """An option that is off is shown by what turns it on: ``--no-...`` would change nothing, and is taken all the
    same."""
    found = _SWITCH.fullmatch(term)
    if found is None:
        return term, text
    turned_on = text.replace(f"default: {found[1]}]", "default: on]")
    if f"default: no-{found[1]}]" not in text:
        return term, turned_on
    without = text.replace(f"; default: no-{found[1]}]", "]").replace(f"[default: no-{found[1]}]", "")
    return f"--{found[1]}", without.rstrip()


def _with_metavar(term: str) -> str:
    for typers, ours in _METAVARS.items():
        term = term.replace(typers, ours)
    return term


def _with_range(text: str) -> str:
    for pattern, words in _RANGES:
        text = pattern.sub(words, text)
    return text


def paragraphs(text: str, width: int) -> Iterator[str]:
    """Those of a help text. The commands of examples stand in lines of their own, which can be pasted into a shell;
    such a paragraph begins with ``\\b``, for typer."""
    commands: list[str] = []
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].startswith("Example: "):
            commands.append(" ".join(paragraph.split()).removeprefix("Example: "))
        elif lines[0] == "\b" and lines[1:2] == ["Examples:"]:
            commands.extend(line.strip() for line in lines[2:])
        else:
            if commands:
                yield _block(commands, width)
                commands = []
            yield paragraph
    if commands:
        yield _block(commands, width)


def _block(commands: Sequence[str], width: int) -> str:
    lines = [f"{_INDENT}{line}" for each in commands for line in _command_lines(each, width - len(_INDENT))]
    return "\n".join(["\b", "Example:" if len(commands) == 1 else "Examples:", *lines])


def _command_lines(command: str, width: int) -> list[str]:
    """A command in lines that are not longer than the width, if it has places to be divided: before its options."""
    lines = [""]
    for part in re.split(r" (?=-\S|\| )", command):
        longer = f"{lines[-1]} {part}".strip() if len(lines) == 1 else f"{lines[-1]} {part}"
        if lines[-1].strip() and len(longer) + len(" \\") > width:
            lines[-1] += " \\"
            lines.append(f"{_INDENT}{part}")
        else:
            lines[-1] = longer
    return lines
