"""A hook of mkdocs: draws the Mermaid of the pages as SVG, so that the site loads nothing from elsewhere.

The theme would load Mermaid from a server of its own choice. GitHub renders the same text by itself. What the pages use
of Mermaid is drawn: `flowchart TD`, `stateDiagram-v2` and `sequenceDiagram`; any other line is an error. Nodes of a
graph stand in a column: arrows that go back are on its left. Colours are the theme's, in light and dark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import count
from typing import Any

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHARACTER, ROW = 8, 46
"""Pixels: the width of a character of a node's name, at most, and from one node of a graph to the next."""
BOX, ARC, TIP = 28, 15, 12
"""Pixels: the height of a node, how much further out an arc is for each node that it passes, and an arrow's tip."""
COLUMN, MESSAGE = 165, 30
"""Pixels: from one participant of a sequence to the next, and from one message to the next."""
BEGIN, END = "begin", "end"
"""What a state diagram calls ``[*]``, as the beginning and the end of arrows."""
INK, PAPER, LINE = "var(--md-typeset-color)", "var(--md-code-bg-color)", "var(--md-default-fg-color--light)"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs hands over each page's text, and goes on with what is returned."""
    number = count()
    return FENCE.sub(lambda found: drawn(found[1], f"tip-{next(number)}"), markdown)


def drawn(text: str, tip: str) -> str:
    """A diagram as HTML; ``tip`` is the id of its arrow's tip, which differs on a page."""
    kind, *lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("%%")]
    if kind == "sequenceDiagram":
        parts, width, height = _sequence(lines, tip)
    else:
        parts, width, height = _graph(kind, lines, tip)
    marker = (
        f'<marker id="{tip}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{LINE}"/></marker>'
    )
    body = "".join(parts)
    return (
        '<div style="overflow-x: auto" data-search-exclude="">'
        f'<svg viewBox="0 0 {width} {height}" role="img" font-size="13"'
        f' style="width: {width}px; max-width: none"><defs>{marker}</defs>{body}</svg></div>'
    )


@dataclass
class _Graph:
    names: dict[str, str] = field(default_factory=dict)
    """Names to be shown, by those of the text, in the order in which nodes are drawn."""
    arrows: list[tuple[str, str]] = field(default_factory=list)


def _graph(kind: str, lines: list[str], tip: str) -> tuple[Iterator[str], int, int]:
    graph = _read(kind, lines)
    place = {name: number for number, name in enumerate(graph.names)}
    box = max(len(name) for name in graph.names.values()) * CHARACTER + 16
    steps = [place[after] - place[before] for before, after in graph.arrows]
    left = max(0, -min(steps)) * ARC + 2 * TIP
    width = left + box + max(0, *steps) * ARC + 2 * TIP

    def parts() -> Iterator[str]:
        for before, after in graph.arrows:
            yield _arrow(place[before], place[after], left, box, tip)
        for number, name in enumerate(graph.names.values()):
            yield _box(left, number * ROW + 4, box, BOX, [name])

    return parts(), width, (len(place) - 1) * ROW + BOX + 8


def _read(kind: str, lines: list[str]) -> _Graph:
    graph = _Graph()
    for line in lines:
        if state := re.fullmatch(r'state "(.+)" as (\w+)', line):
            graph.names[state[2]] = state[1]
        elif arrow := re.fullmatch(r"(\S+) --> (\S+)", line):
            graph.arrows.append((arrow[1].replace("[*]", BEGIN), arrow[2].replace("[*]", END)))
        else:
            raise ValueError(f"scripts/site_diagrams.py cannot draw this line of Mermaid ({kind}): {line}")
    used = {name for arrow in graph.arrows for name in arrow}
    if kind == "flowchart TD":
        graph.names = {name: name for name in _in_order(sorted(used), graph.arrows)}
    elif kind == "stateDiagram-v2":
        ends = {name: name for name in (BEGIN, END) if name in used}
        graph.names = ({BEGIN: BEGIN} if BEGIN in ends else {}) | graph.names | ends
    else:
        raise ValueError(f"scripts/site_diagrams.py cannot draw this kind of Mermaid: {kind}")
    return graph


def _in_order(names: list[str], arrows: list[tuple[str, str]]) -> Iterator[str]:
    """Names, each after those from which arrows lead to it."""
    while names:
        first = next(each for each in names if not any(a in names for a, b in arrows if b == each))
        names = [each for each in names if each != first]
        yield first


def _arrow(start: int, end: int, left: int, box: int, tip: str) -> str:
    y1, y2 = (number * ROW + 4 + BOX / 2 for number in (start, end))
    if end == start + 1:
        middle = left + box / 2
        return _path(f"M{middle} {y1 + BOX / 2}L{middle} {y2 - BOX / 2}", tip)
    side, x = (1, left + box) if end > start else (-1, left)
    out = x + side * (abs(end - start) * ARC + TIP) * 4 / 3
    y1, y2 = y1 + side * BOX / 5, y2 - side * BOX / 5
    return _path(f"M{x} {y1:g}C{out:.0f} {y1:g} {out:.0f} {y2:g} {x} {y2:g}", tip)


def _sequence(lines: list[str], tip: str) -> tuple[Iterator[str], int, int]:
    people: dict[str, str] = {}
    rows: list[tuple[str, ...]] = []
    for line in lines:
        if line == "autonumber":
            continue
        if person := re.fullmatch(r"(?:actor|participant) (\w+)(?: as (.+))?", line):
            people[person[1]] = person[2] or person[1]
        elif message := re.fullmatch(r"(\w+)(--?)>>(\w+): (.+)", line):
            rows.append(message.groups())
        elif note := re.fullmatch(r"Note over (\w+): (.+)", line):
            rows.append(note.groups())
        else:
            raise ValueError(f"scripts/site_diagrams.py cannot draw this line of Mermaid (sequenceDiagram): {line}")
    place = {name: number * COLUMN + COLUMN // 2 for number, name in enumerate(people)}
    height = (len(rows) + 1) * MESSAGE + BOX + 12

    def parts() -> Iterator[str]:
        for name, shown in people.items():
            yield _path(f"M{place[name]} {BOX + 4}L{place[name]} {height}", "", dashed=True)
            yield _box(place[name] - COLUMN // 2 + 8, 4, COLUMN - 16, BOX, [shown])
        number = count(1)
        for row, said in enumerate(rows, 1):
            y = row * MESSAGE + BOX + 12
            if len(said) == 2:
                words = re.split("<br>", said[1])
                yield _box(place[said[0]] - 60, y - 22, 120, 8 + 15 * len(words), words)
                continue
            start, dashes, end, words = said
            x1, x2 = place[start], place[end]
            yield _path(f"M{x1} {y}L{x2} {y}", tip, dashed=dashes == "--")
            yield _text((x1 + x2) / 2, y - 5, f"{next(number)} {words}", halo=True)

    return parts(), len(people) * COLUMN, height


def _path(way: str, tip: str, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="4 4"' if dashed else ""
    marker = f' marker-end="url(#{tip})"' if tip else ""
    return f'<path d="{way}" fill="none" stroke="{LINE}"{dashes}{marker}/>'


def _box(x: float, y: float, width: float, height: float, lines: list[str]) -> str:
    frame = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{PAPER}" stroke="{LINE}"/>'
    first = y + height / 2 + 4.5 - 7.5 * (len(lines) - 1)
    return frame + "".join(_text(x + width / 2, first + 15 * number, line) for number, line in enumerate(lines))


def _text(x: float, y: float, words: str, halo: bool = False) -> str:
    around = ' stroke="var(--md-default-bg-color)" stroke-width="4" paint-order="stroke"' if halo else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{INK}"{around}>{escape(words)}</text>'
