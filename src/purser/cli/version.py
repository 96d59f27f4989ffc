"""`purser version`."""

from typing import Annotated

import typer

from purser.cli.output import Document, dump

HELP = """Print the version of Purser and of the interpreter that runs it.

Example: purser version -o json
"""


def version(
    output: Annotated[Document, typer.Option("--output", "-o", help="How to print it.")] = Document.TEXT,
) -> None:
    """Print the version."""
    import platform

    import purser

    if output is Document.TEXT:
        print(f"purser {purser.__version__}")
        return
    dump({"version": purser.__version__, "python": platform.python_version()}, output)
