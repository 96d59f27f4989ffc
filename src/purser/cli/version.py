"""`purser version`."""

from typing import Annotated

import typer

from purser.cli.output import DocumentFormat, dump

HELP = """Print the version of Purser and of the interpreter that runs it.

Example: purser version -o json
"""


def version(
    output: Annotated[DocumentFormat, typer.Option("--output", "-o", help="How to print it.")] = DocumentFormat.TEXT,
) -> None:
    """Print the version."""
    import platform

    import purser

    if output is DocumentFormat.TEXT:
        print(f"purser {purser.__version__}")
        return
    dump({"version": purser.__version__, "python": platform.python_version()}, output)
