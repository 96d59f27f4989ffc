"""A test sleeps between two looks for something; that nothing happens is shown by waiting for what comes after."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("lab", "security", "unit")
"""The others wait for programs that say nothing of what they do, or break things at random times."""


TIMED = re.compile(r"not [\w.]+\.wait\(|\.quiet\(|raises\(TimeoutError\)[^\n]*:\n\s+async with asyncio\.timeout\(")
"""Waits that are to end without what they wait for, by another word."""


def sleeps_outside_loops(tree: ast.AST, *, in_loop: bool = False) -> list[int]:
    """Lines. A method named ``sleep`` is a clock's; ``sleep(0)`` is a turn of the event loop."""
    found = []
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name == "sleep":
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep"):
            is_turn = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            found += [] if in_loop or is_turn else [node.lineno]
        is_loop = isinstance(node, ast.While | ast.For | ast.AsyncFor)
        found += sleeps_outside_loops(node, in_loop=is_loop or (in_loop and not is_function))
    return found


def test_no_test_waits_for_nothing_to_happen() -> None:
    files = [path for folder in FOLDERS for path in (TESTS / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in files
        if "sleep(" in (text := path.read_text())
        for line in sleeps_outside_loops(ast.parse(text))
    ]
    assert found == []


def test_no_test_waits_for_a_time_to_run_out() -> None:
    files = (path for folder in FOLDERS for path in (TESTS / folder).rglob("*.py") if path != Path(__file__))
    found = [f"{path.relative_to(TESTS)}: {each[0]}" for path in files for each in TIMED.finditer(path.read_text())]
    assert found == []


def test_waits_for_a_time_to_run_out_are_found() -> None:
    for code in (
        "assert not done.wait(0.05)",
        "await one.quiet()",
        "with pytest.raises(TimeoutError):\n    async with asyncio.timeout(1):\n        await it",
    ):
        assert TIMED.search(code), code
    assert not TIMED.search("assert done.wait(30)")


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("time.sleep(0.1)", [1]),
        ("while not found():\n    await asyncio.sleep(0.1)", []),
        ("while True:\n    async def wait():\n        await asyncio.sleep(1)", [3]),
        ("await asyncio.sleep(0)", []),
    ],
)
def test_sleeps_outside_loops_are_found(code: str, lines: list[int]) -> None:
    assert sleeps_outside_loops(ast.parse(code)) == lines
