"""Draws docs/pictures/lab.svg: the first screen of `purser lab`, by the code that prints it.

    python scripts/draw_lab.py [REPOSITORY]

Ports and paths are made up. A test compares the picture with what is drawn here.
"""

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import CONSOLE_SVG_FORMAT, Console

from purser.lab.driver import DriverKind
from purser.lab.screen import Surroundings, show
from purser.lab.settings import LabSettings, node_choices

REPOSITORY = Path(__file__).parents[1]
PICTURE = Path("docs/pictures/lab.svg")
WIDTH, HEIGHT = 104, 26
"""Columns, as wide as the widest line, and lines: without both of them a dumb terminal would have 80 columns."""


def main(repository: Path) -> None:
    """Write it."""
    (repository / PICTURE).write_text(drawn())


def drawn() -> str:
    """The picture: a lab with its default nodes. Fonts are the reader's own: nothing is loaded from elsewhere."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, file=io.StringIO())
    around = Surroundings(purser="purser", examples=Path("/home/you/purser/examples"), kubectl=True)
    show(some_lab(), 2.1, console, around, "http://127.0.0.1:40010/")
    layout = re.sub(r" *@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="purser lab", code_format=layout, unique_id="lab") + "\n"


def some_lab() -> Any:
    """What the screen reads of a lab."""
    settings = LabSettings(node_choices(()))
    nodes = {
        choice.name: SimpleNamespace(driver=SimpleNamespace(kind=DriverKind.LIBRARY), metrics_port=port)
        for port, choice in enumerate(settings.nodes, 40001)
    }
    return SimpleNamespace(
        settings=settings,
        nodes=nodes,
        url="https://127.0.0.1:40000",
        kubeconfig=Path("/tmp/purser-a1b2c3d4/kubeconfig"),
        scheduler_metrics_port=40000 + len(nodes) + 1,
        real={},
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY)
