"""A screen as lines: only what is visible is looked at, however many rows there are."""

from collections.abc import Sequence
from dataclasses import dataclass

from purser.core.state import ClusterState
from purser.top.lines import Line, Span, Style, clean, cut, fit_text, wrap_text
from purser.top.screen import Screen
from purser.top.view_names import TITLES, TopView
from purser.top.views import ViewTable, counts_of, headline

GAP = "  "
MIN_CELLS = 6
"""Of a column, where there is no room for all."""
MAX_CELLS = 44
"""Of a column that is not the last."""

HELP = """\
Up Down j k      one row            Page keys, Space   a page; also Ctrl-B, Ctrl-F
Home End g G     first, last row    Tab, h l, 1 to 4   another view
Enter            the row's details; for a pod, why it waits or runs on its node
/                show only rows that contain a text; Escape shows all
s                sort by the next column      S   the other way round
?                this page                    q   quit
Ctrl-L           redraw the screen

Memory and cores show how much grants hold, not how much programs use.
A row is red if one of its GPUs is unhealthy or disputed, and dim if it or one of its GPUs is cordoned."""

_KEYS = "q quit  ? help  Tab view  Enter details  / find  s sort"


@dataclass(frozen=True)
class Shown:
    """What there is to draw."""

    screen: Screen
    table: ViewTable
    state: ClusterState | None
    """None: nothing is known yet."""
    where: str = ""
    """Whose state it is: the API server's address, or the scheduler's."""
    problem: str = ""
    """Why it is not up to date; empty: it is."""
    page: Sequence[str] = ()
    """The lines of the details."""


@dataclass(frozen=True)
class ScreenLayout:
    """How many lines are for what."""

    has_summary: bool
    has_views: bool
    has_notes: bool
    has_status: bool
    height: int
    """Rows of the table, or lines of details."""


def layout_of(lines: int, state: ClusterState | None = None) -> ScreenLayout:
    """For a terminal with so many lines: rows are left longest."""
    has_status, has_views, has_summary = lines >= 3, lines >= 4, lines >= 8
    has_notes = has_views and state is not None and bool(state.notes)
    height = max(lines - has_status - has_views - has_notes - has_summary - 1, 1)
    return ScreenLayout(has_summary, has_views, has_notes, has_status, height)


def help_lines(state: ClusterState | None) -> list[str]:
    """The page of keys, with the notes of which the table's line may have no room for all."""
    return [*HELP.splitlines(), *([] if state is None else ["", *_notes(state)] if state.notes else [])]


def _notes(state: ClusterState) -> list[str]:
    return [f"Note: {clean(note)}" for note in state.notes]


def drawn(shown: Shown, cells: int, lines: int) -> list[Line]:
    """Exactly so many lines, none of more cells."""
    layout = layout_of(lines, shown.state)
    found: list[Line] = []
    if layout.has_summary:
        text = "reading the cluster ..." if shown.state is None else headline(shown.state)
        found.append((Span(text, Style.TITLE), Span(f"{GAP}{shown.where}", Style.FAINT)))
    if layout.has_views:
        found.append(_views(shown, cells))
    if layout.has_notes and shown.state is not None:
        found.append((Span(GAP.join(_notes(shown.state)), Style.NOTICE),))
    if shown.screen.help:
        found += _page(help_lines(shown.state), shown.screen.page_top, cells, layout.height + 1)
    elif shown.screen.details:
        found += _page(shown.page, shown.screen.page_top, cells, layout.height + 1)
    else:
        found += _table(shown, cells, layout.height)
    room = lines - layout.has_status
    found = [*found[:room], *(() for _ in range(room - len(found)))]
    if layout.has_status:
        found.append(_status(shown))
    return [cut(line, cells) for line in found]


def _views(shown: Shown, cells: int) -> Line:
    """All of them, or where there is no room for all the one that is shown."""
    state, screen = shown.state, shown.screen
    counts = dict.fromkeys(TopView, 0) if state is None else counts_of(state)
    names = {view: f" {TITLES[view]} {counts[view]} " for view in TopView}
    if sum(len(name) + 1 for name in names.values()) > cells:
        names = {screen.view: names[screen.view]}
    spans: list[Span] = []
    for view, name in names.items():
        spans += [Span(name, Style.CHOSEN if view is screen.view else Style.PLAIN), Span(" ")]
    if screen.find:
        spans.append(Span(f"/{clean(screen.find)} ({len(shown.table.rows)})", Style.NOTICE))
    return tuple(spans)


def _status(shown: Shown) -> Line:
    if shown.screen.typed is not None:
        typed = Span(f"/{clean(shown.screen.typed)}_", Style.TITLE)
        return (typed, Span(f"{GAP}Enter keep  Escape all rows", Style.FAINT))
    if shown.problem:
        return (Span(clean(shown.problem), Style.BAD),)
    if shown.screen.help or shown.screen.details:
        return (Span("Escape back  Up Down scroll", Style.FAINT),)
    return (Span(_KEYS, Style.FAINT),)


def _page(text: Sequence[str], top: int, cells: int, height: int) -> list[Line]:
    lines: list[str] = []
    for each in text:
        lines += wrap_text(each, cells) if each else [""]
    top = min(top, max(len(lines) - height, 0))
    return [(Span(line),) for line in lines[top : top + height]]


def page_length(text: Sequence[str], cells: int) -> int:
    """Lines of details, wrapped."""
    return sum(len(wrap_text(each, cells)) if each else 1 for each in text)


def _table(shown: Shown, cells: int, height: int) -> list[Line]:
    table, choice = shown.table, shown.screen.choice
    places = shown_columns(table, cells, choice.sort)
    widths = _widths(table, places, cells)
    heads = []
    for place in places:
        mark = ("v" if choice.down else "^") if place == choice.sort else ""
        heads.append(fit_text(f"{table.heads[place]}{mark}", widths[place], right=table.right[place]))
    found: list[Line] = [(Span(GAP.join(heads), Style.HEAD),)]
    for at in range(choice.top, min(choice.top + height, len(table.rows))):
        row = table.rows[at]
        text = GAP.join(fit_text(row.cells[place], widths[place], right=table.right[place]) for place in places)
        is_chosen = at == choice.place
        found.append((Span(fit_text(text, cells) if is_chosen else text, Style.CHOSEN if is_chosen else row.style),))
    if not table.rows:
        found.append((Span(_empty_view_text(shown), Style.FAINT),))
    return found


def _empty_view_text(shown: Shown) -> str:
    if shown.state is None:
        return ""
    if shown.table.total:
        return "no row contains this text. Press Escape to show all rows"
    return {
        TopView.NODES: "no node has published GPUs",
        TopView.GPUS: "no node has published GPUs",
        TopView.PODS: "no pod holds a GPU",
        TopView.WAITING: "no pods are waiting for GPUs",
    }[shown.screen.view]


def shown_columns(table: ViewTable, cells: int, sort: int) -> list[int]:
    """The columns that are always shown, the one that rows are sorted by, and of the others those for which there is
    room."""
    places = [place for place in range(len(table.heads)) if not table.wide[place] or place == sort]
    taken = sum(min(table.widths[place] + 1, MAX_CELLS) + len(GAP) for place in places)
    for place in range(len(table.heads)):
        needed = min(table.widths[place] + 1, MAX_CELLS) + len(GAP)
        if place not in places and taken + needed <= cells:
            places.append(place)
            taken += needed
    return sorted(places)


def _widths(table: ViewTable, places: Sequence[int], cells: int) -> dict[int, int]:
    """Cells of each column; the last has all that is left. One more than is needed, for the mark of the sorted one."""
    widths = {place: min(max(table.widths[place], len(table.heads[place]) + 1), MAX_CELLS) for place in places}
    last = places[-1]
    least = len(table.heads[last]) + 1 + len(GAP) * (len(places) - 1)
    if sum(widths.values()) - widths[last] + least > cells:
        most = max((cells - least) // len(places), MIN_CELLS)
        widths = {place: min(each, most) for place, each in widths.items()}
    others = sum(widths[place] + len(GAP) for place in places[:-1])
    widths[last] = max(min(table.widths[last] + 1, cells - others), len(table.heads[last]) + 1)
    return widths
