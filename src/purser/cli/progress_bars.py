"""How far a command is that takes long: bars on a terminal, and nowhere else."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bars() -> "Progress":
    """Bars on standard error, which are gone afterwards: a context manager that shows its tasks."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)
