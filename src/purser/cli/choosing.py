"""Which rows of a table `purser get` shows, and in which order: options that several of its commands have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from purser.cli.output import MISUSED, Column, cell, fail

if TYPE_CHECKING:
    from purser.cli.get_tables import GpuRow

Row = TypeVar("Row")


class StateFilter(StrEnum):
    """Values of ``--state``."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    CORDONED = "cordoned"
    DISPUTED = "disputed"
    FREE = "free"
    USED = "used"


Nodes = Annotated[
    list[str] | None, typer.Option("--node", metavar="NODE", help="Show only what is on this node. May be repeated.")
]
Model = Annotated[
    str | None, typer.Option("--model", metavar="TEXT", help="Show only GPUs whose model contains this text.")
]
Selector = Annotated[
    str | None, typer.Option("--selector", "-l", metavar="LABELS", help="Show only what is on nodes with these labels.")
]
State = Annotated[
    StateFilter | None,
    typer.Option(
        "--state",
        help="Show only GPUs in this state. A free GPU takes new pods and is not held by any pod, even in part.",
    ),
]
SortBy = Annotated[
    str | None,
    typer.Option(
        "--sort-by", metavar="COLUMN", help="Sort by this column. Prefix the name with - to reverse the order."
    ),
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Do not print the header line.")]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="After printing the table, watch for changes and print changed rows, until Ctrl-C."
    ),
]


@dataclass(frozen=True)
class TableOptions:
    """How a table is printed that can be watched."""

    sort_by: SortBy = None
    watch: Watch = False
    no_headers: NoHeaders = False


def is_in_state(row: "GpuRow", wanted: StateFilter) -> bool:
    """Whether ``--state`` shows a GPU; several may be so of one that takes no pods."""
    state = row.state
    is_cordoned = state.cordoned or row.is_node_cordoned
    takes_pods = state.device.healthy and not is_cordoned and not state.disputed
    is_degraded = bool(state.device.degraded_reason)
    facts = {
        StateFilter.HEALTHY: takes_pods and not is_degraded,
        StateFilter.DEGRADED: is_degraded,
        StateFilter.UNHEALTHY: not state.device.healthy,
        StateFilter.CORDONED: is_cordoned,
        StateFilter.DISPUTED: bool(state.disputed),
        StateFilter.FREE: takes_pods and not state.usage.pods,
        StateFilter.USED: bool(state.usage.pods),
    }
    return facts[wanted]


def has_model(model: str, wanted: str | None) -> bool:
    """Whether ``--model`` shows it."""
    return wanted is None or wanted.casefold() in model.casefold()


def sort_rows(rows: Sequence[Row], columns: Sequence[Column[Row]], sort_by: str | None) -> list[Row]:
    """Rows as ``--sort-by`` wants them: by the number that a cell begins with, or as people sort names.

    Ends the command where there is no such column.
    """
    from purser.core.wording import natural_sort_key

    if sort_by is None:
        return list(rows)
    name = sort_by.removeprefix("-").casefold()
    found = next((each for each in columns if name in _names(each)), None)
    if found is None:
        known = ", ".join(_names(each)[-1] for each in columns)
        fail(f"invalid value {sort_by!r} for --sort-by: must be one of {known}", MISUSED)
    key: Callable[[Row], object] = lambda row: natural_sort_key(cell(found.read(row)))  # noqa: E731
    return sorted(rows, key=key, reverse=sort_by.startswith("-"))  # type: ignore[arg-type]


def _names(column: Column[Row]) -> tuple[str, ...]:
    """What a column is called: its header, and the header without its unit and with hyphens."""
    head = column.head.casefold()
    return head, head.removesuffix(" mib").removesuffix(" %").replace(" ", "-")
