"""What the user has chosen to see, and what each key changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from purser.top import keys
from purser.top.view_names import TopView
from purser.top.views import ViewTable

MAX_FIND = 200
"""Characters of a filter."""

_VIEWS = list(TopView)


@dataclass(frozen=True)
class ViewChoice:
    """What is chosen in one view."""

    key: str = ""
    """Of the row of the cursor; empty: the first."""
    place: int = 0
    """Where that row was: where it is gone, the cursor stays there."""
    top: int = 0
    """The first row that is shown."""
    find: str = ""
    sort: int = 0
    down: bool = False
    """Sorted the other way round."""


@dataclass(frozen=True)
class Screen:
    """All of it."""

    view: TopView = TopView.NODES
    choices: Mapping[TopView, ViewChoice] = field(default_factory=lambda: {view: ViewChoice() for view in TopView})
    typed: str | None = None
    """The filter as it is being typed; None: none is."""
    details: bool = False
    """The chosen row in full, in place of the table."""
    help: bool = False
    page_top: int = 0
    """The first line of details or help that is shown."""
    is_over: bool = False

    @property
    def choice(self) -> ViewChoice:
        """Of the view that is shown."""
        return self.choices[self.view]

    @property
    def find(self) -> str:
        """The filter that counts now: as it is typed, rows come and go."""
        return self.choice.find if self.typed is None else self.typed

    def choose(self, choice: ViewChoice) -> "Screen":
        """With another choice in the view that is shown."""
        return replace(self, choices={**self.choices, self.view: choice})


def settled(screen: Screen, table: ViewTable, height: int) -> Screen:
    """With the cursor on a row that is there, and the row among those that are shown, ``height`` at most."""
    choice = screen.choice
    if not table.rows:
        return screen.choose(replace(choice, key="", place=0, top=0))
    place = choice.place
    if not (place < len(table.rows) and table.rows[place].key == choice.key) and choice.key:
        place = next((at for at, row in enumerate(table.rows) if row.key == choice.key), place)
    place = min(place, len(table.rows) - 1)
    height = max(height, 1)
    top = min(max(choice.top, place - height + 1), place)
    top = max(min(top, len(table.rows) - height), 0)
    return screen.choose(replace(choice, key=table.rows[place].key, place=place, top=top))


def handle_key(screen: Screen, key: str, table: ViewTable, height: int, columns: Sequence[int]) -> Screen:
    """What a key does. ``height``: how many rows, or lines of details, are shown at once; ``columns``: those that are
    shown."""
    if key == keys.INTERRUPT:
        return replace(screen, is_over=True)
    if screen.typed is not None:
        return _type(screen, key)
    if screen.help or screen.details:
        return _turn_page(screen, key, height)
    if (choice := _move(screen, key, table, height)) is not None:
        return settled(screen.choose(choice), table, height)
    choice = screen.choice
    match key:
        case "q":
            return replace(screen, is_over=True)
        case keys.TAB | keys.BACK_TAB | "l" | "h":
            step = 1 if key in (keys.TAB, "l") else -1
            return replace(screen, view=_VIEWS[(_VIEWS.index(screen.view) + step) % len(_VIEWS)])
        case "1" | "2" | "3" | "4":
            return replace(screen, view=_VIEWS[int(key) - 1])
        case "/":
            return replace(screen, typed=choice.find)
        case keys.ESCAPE:
            return screen.choose(replace(choice, find=""))
        case "s":
            following = next((place for place in columns if place > choice.sort), columns[0])
            return screen.choose(replace(choice, sort=following, down=False))
        case "S":
            return screen.choose(replace(choice, down=not choice.down))
        case keys.ENTER if table.rows:
            return replace(settled(screen, table, height), details=True, page_top=0)
        case "?":
            return replace(screen, help=True, page_top=0)
    return screen


def _move(screen: Screen, key: str, table: ViewTable, height: int) -> ViewChoice | None:
    steps = {
        keys.UP: -1,
        "k": -1,
        keys.DOWN: 1,
        "j": 1,
        keys.PAGE_UP: -height,
        keys.PAGE_DOWN: height,
        " ": height,
        keys.HOME: -len(table.rows),
        "g": -len(table.rows),
        keys.END: len(table.rows),
        "G": len(table.rows),
    }
    if key not in steps:
        return None
    choice = settled(screen, table, height).choice
    if not table.rows:
        return choice
    place = min(max(choice.place + steps[key], 0), len(table.rows) - 1)
    return replace(choice, place=place, key=table.rows[place].key)


def _type(screen: Screen, key: str) -> Screen:
    typed = screen.typed or ""
    if key == keys.ENTER:
        return replace(screen.choose(replace(screen.choice, find=typed)), typed=None)
    if key == keys.ESCAPE:
        return replace(screen.choose(replace(screen.choice, find="")), typed=None)
    if key == keys.BACKSPACE:
        return replace(screen, typed=typed[:-1])
    if key == keys.ERASE_LINE:
        return replace(screen, typed="")
    return replace(screen, typed=(typed + key)[:MAX_FIND]) if len(key) == 1 else screen


def _turn_page(screen: Screen, key: str, height: int) -> Screen:
    top = screen.page_top
    match key:
        case "q" | keys.ESCAPE | keys.ENTER | keys.BACKSPACE | "?":
            return replace(screen, help=False, details=False, page_top=0)
        case keys.UP | "k":
            top -= 1
        case keys.DOWN | "j":
            top += 1
        case keys.PAGE_UP:
            top -= height
        case keys.PAGE_DOWN | " ":
            top += height
        case keys.HOME | "g":
            top = 0
    return replace(screen, page_top=max(top, 0))
