"""The table of what each operand needs, wherever it stands in docs/, is `NEEDS`."""

import re
from pathlib import Path

from purser.operator.order import NEEDS, Operand

DOCS = Path(__file__).parents[3] / "docs"
HEAD = "| operand | needs, on the same node |\n|---|---|\n"
WORDS = {
    "driver": Operand.DRIVER,
    "container toolkit": Operand.TOOLKIT,
    "device plugin": Operand.DEVICE_PLUGIN,
    "GPU feature discovery": Operand.GFD,
    "validation": Operand.VALIDATOR,
    "DCGM": Operand.DCGM,
    "DCGM's exporter": Operand.DCGM_EXPORTER,
    "node status exporter": Operand.NODE_STATUS_EXPORTER,
    "MIG manager": Operand.MIG_MANAGER,
}


def operands(cell: str) -> tuple[Operand, ...]:
    """``validation, and DCGM if that is enabled``: what is disabled is not waited for, whatever it is"""
    named = re.split(", and |, ", re.sub(r" (if|where) that is enabled$", "", cell.strip()))
    return tuple(WORDS[each] for each in named if each)


def test_the_table_of_the_order_is_the_order() -> None:
    (after,) = (text.split(HEAD)[1] for page in DOCS.glob("*.md") if HEAD in (text := page.read_text()))
    rows = [line.strip("|").split("|") for line in after.split("\n\n")[0].splitlines()]
    told = {operand: operands(needed) for named, needed in rows for operand in operands(named)}
    assert told == NEEDS
