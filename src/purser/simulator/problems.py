"""What is wrong with an input, with the place where it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

MAX_SHOWN_PROBLEMS = 20
"""As many as help; a file of the wrong kind has one for each of its lines."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. Lines and columns count from 1; a column is one of characters, as editors show it. Line
    0: the file as a whole."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class InputError(ValueError):
    """Nothing is simulated from an input that is wrong anywhere: leaving out what is wrong would answer another
    question.
    """

    def __init__(self, problems: "tuple[Problem, ...] | list[Problem]") -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> Iterator[str]:
        """A line for each of the first problems, and one on how many more there are."""
        yield from (str(problem) for problem in self.problems[:MAX_SHOWN_PROBLEMS])
        if len(self.problems) > MAX_SHOWN_PROBLEMS:
            yield f"and {len(self.problems) - MAX_SHOWN_PROBLEMS} more"


class FileProblems:
    """Problems of one file, as they are found."""

    def __init__(self, file: Path | str) -> None:
        self.file = str(file)
        self.found: list[Problem] = []

    def add(self, line: int, column: int, message: str) -> None:
        """Note one."""
        self.found.append(Problem(self.file, line, column, message))

    def raise_if_any(self) -> None:
        """Raises `InputError`."""
        if self.found:
            raise InputError(self.found)


@contextmanager
def raise_input_errors(file: Path) -> Iterator[None]:
    """What cannot be read at all is an `InputError` too."""
    try:
        yield
    except OSError as error:
        raise InputError([Problem(str(file), 0, 0, f"cannot read the file: {error.strerror or error}")]) from error
