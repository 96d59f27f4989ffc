"""`purser version`."""

import typer

from purser.cli.options import DocumentOption
from purser.cli.output import DocumentFormat, dump

HELP = """Print the versions of Purser and of the Python interpreter.

Example: purser version -o json
"""


def print_version(wanted: bool) -> None:
    """``--version``: print it, and end the command."""
    if wanted:
        version()
        raise typer.Exit


def version(output: DocumentOption = DocumentFormat.TEXT) -> None:
    """Print the version."""
    import platform

    import purser

    if output is DocumentFormat.TEXT:
        print(f"purser {purser.__version__} (Python {platform.python_version()})")
        return
    dump({"version": purser.__version__, "python": platform.python_version()}, output)
