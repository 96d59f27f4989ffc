"""Writes the diagrams of the documentation that follow from the code: Purser's rooms, and the states of nodes.

    python scripts/generate_diagrams.py [REPOSITORY]

A page shows one between the lines ``<!-- diagram NAME ... -->`` and ``<!-- end of diagram -->``, wherever it likes.
What is between them is Mermaid, which GitHub renders and scripts/site_diagrams.py draws for the site. A test compares
the pages with what is made here.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import grimp

import purser.agent
from purser.operator import gates, mig, upgrade

REPOSITORY = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- diagram (\w+)\b[^>]*-->\n).*?(<!-- end of diagram -->)", re.DOTALL)

Edges = list[tuple[str, str]]
NONE, ANY = "(none)", "(any)"
"""A node that is in no state, and one in whichever state, in the docstrings of packages."""


def main(repository: Path) -> None:
    """Write all of it."""
    for path, text in written(repository).items():
        (repository / path).write_text(text)


def written(repository: Path) -> dict[Path, str]:
    """The pages that show diagrams, by path in the repository."""
    made = diagrams()
    pages = {path.relative_to(repository): path.read_text() for path in sorted(repository.glob("docs/*.md"))}
    return {
        path: PLACE.sub(lambda found: f"{found[1]}\n{made[found[2]]}\n{found[3]}", text)
        for path, text in pages.items()
        if PLACE.search(text)
    }


def diagrams() -> dict[str, str]:
    """All of them by name, in Markdown."""
    return {
        "rooms": fenced(rooms(purser)),
        "agent": fenced(rooms(purser.agent)),
        "gates": fenced(states(transitions(gates))),
        "upgrade": upgrade_states(transitions(upgrade)),
        "mig": fenced(states(transitions(mig))),
    }


def fenced(lines: Iterator[str]) -> str:
    """As Markdown has a diagram."""
    return "\n".join(["```mermaid", *lines, "```\n"])


# --- rooms


def rooms(within: ModuleType) -> Iterator[str]:
    """An arrow from each package in this one to each that it imports and that no other of its imports leads to."""
    packages = {path.parent.name for path in Path(within.__path__[0]).glob("*/__init__.py")}
    yield "flowchart TD"
    edges = imports(f"{within.__name__}.", packages)
    yield from (f"    {before} --> {after}" for before, after in without_short_cuts(edges))


def imports(prefix: str, packages: set[str]) -> Edges:
    """Which of the packages import which others, wherever in their modules. ``prefix``: of their modules' names."""
    graph = grimp.build_graph("purser", cache_dir=None)
    modules = {each for each in graph.modules if each.startswith(prefix)}
    found = {
        (importer.removeprefix(prefix).split(".")[0], imported.removeprefix(prefix).split(".")[0])
        for importer in modules
        for imported in graph.find_modules_directly_imported_by(importer) & modules
    }
    return sorted((a, b) for a, b in found if a != b and {a, b} <= packages)


def without_short_cuts(edges: Edges) -> Edges:
    """Those that lead where no other way leads. The graph has no cycles: the import linter holds that."""
    return [edge for edge in edges if edge[1] not in reached(edge[0], [each for each in edges if each != edge])]


def reached(start: str, edges: Edges) -> set[str]:
    """Where the edges lead from there."""
    following = {after for before, after in edges if before == start}
    return following.union(*(reached(each, edges) for each in following))


# --- states


def transitions(package: ModuleType) -> Edges:
    """The lines ``state -> state, state`` of its docstring."""
    lines = re.findall(r"^ {4}(\S+) +-> +(.+)$", package.__doc__ or "", re.MULTILINE)
    return [(before, after) for before, ends in lines for after in ends.split(", ")]


def states(edges: Edges) -> Iterator[str]:
    """A diagram of these transitions, in their order."""
    yield "stateDiagram-v2"
    for name in dict.fromkeys(name for edge in edges for name in edge if name != NONE):
        yield f'    state "{name}" as {identifier(name)}'
    yield from (f"    {identifier(before)} --> {identifier(after)}" for before, after in edges)


def identifier(name: str) -> str:
    """How Mermaid can name a state."""
    return "[*]" if name == NONE else name.replace("-", "_")


def upgrade_states(edges: Edges) -> str:
    """A diagram of the way on, and a table of the ways back: with all arrows nobody could follow one."""
    order = list(dict.fromkeys(before for before, _ in edges))
    on = [(before, after) for before, after in edges if after != NONE and order.index(before) < order.index(after)]
    back = {before: [end for start, end in edges if start == before and (start, end) not in on] for before in order}
    alike: dict[str, list[str]] = {}
    for before, ends in back.items():
        alike.setdefault(words(ends), []).append(before)
    rows = (f"| {words(before)} | {ends} |\n" for ends, before in alike.items() if ends)
    return f"{fenced(states(on))}\n| from | back to |\n|---|---|\n{''.join(rows)}"


def words(states: list[str]) -> str:
    """States in a table."""
    return ", ".join({NONE: "no state", ANY: "any state"}.get(each, f"`{each}`") for each in states)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
