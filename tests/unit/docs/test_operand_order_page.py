"""The table of what each operand needs, wherever it stands in docs/, is `NEEDS`."""

import re
from pathlib import Path

from purser.operator.order import NEEDS

DOCS = Path(__file__).parents[3] / "docs"
HEAD = "| operand | needs, on the same node |\n|---|---|\n"


def operands(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


def test_the_table_of_the_order_is_the_order() -> None:
    (after,) = (text.split(HEAD)[1] for page in DOCS.glob("*.md") if HEAD in (text := page.read_text()))
    rows = [line.strip("|").split("|") for line in after.split("\n\n")[0].splitlines()]
    told = {operand: operands(needed) for named, needed in rows for operand in operands(named)}
    assert told == NEEDS
