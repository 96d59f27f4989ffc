"""A test sleeps between two looks for something; that nothing happens is shown by waiting for what comes after."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FOLDERS = ("lab", "security", "unit")
"""The others wait for programs that say nothing of what they do, or break things at random times."""


TIMED = re.compile(r"not [\w.]+\.wait\(|\.quiet\(|raises\(TimeoutError\)[^\n]*:\n\s+async with asyncio\.timeout\(")
"""Waits that are to end without what they wait for, by another word."""


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, ast.While | ast.For | ast.AsyncFor)


def _is_look(node: ast.AST) -> bool:
    """A loop that may end at any turn. One over a list takes as many as there are, whatever happens meanwhile."""
    if isinstance(node, ast.For | ast.AsyncFor):
        endless = ast.unparse(node.iter).startswith("itertools.count(")
        return endless or any(isinstance(each, ast.Break | ast.Return) for each in _of_loop(node))
    return isinstance(node, ast.While)


def _of_loop(loop: ast.AST) -> Iterator[ast.AST]:
    """What may end it: of a loop inside, that is a return alone."""
    for node in ast.iter_child_nodes(loop):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from (each for each in _of_loop(node) if not (_is_loop(node) and isinstance(each, ast.Break)))


def needless_sleeps(tree: ast.AST, is_look: Callable[[ast.AST], bool] = _is_look, *, looks: bool = False) -> list[int]:
    """Lines of sleeps that no look for something follows; ``looks``: of code that is called again until it finds it.

    A method named ``sleep`` is a clock's; ``sleep(0)`` is a turn of the event loop. A pause of random length lets other
    things happen in between.
    """
    found = []
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name == "sleep":
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("asyncio.sleep", "time.sleep"):
            is_turn = isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            is_random = re.match(r"(rng|dice)\.", ast.unparse(node.args[0]))
            found += [] if looks or is_turn or is_random else [node.lineno]
        found += needless_sleeps(node, is_look, looks=is_look(node) or (looks and not is_function))
    return found


def test_no_test_waits_for_nothing_to_happen() -> None:
    """A lab's tests may go through a list at a pace: of faults, or of what a person types."""
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for folder in FOLDERS
        for path in (TESTS / folder).rglob("*.py")
        if "sleep(" in (text := path.read_text())
        for line in needless_sleeps(ast.parse(text), _is_loop if folder == "lab" else _is_look)
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
        ("for each in (1, 2):\n    ask()\n    await asyncio.sleep(limit_s * 1.5)", [3]),
        ("for each in (1, 2):\n    await asyncio.sleep(rng.random())", []),
        ("for _ in range(9):\n    if found():\n        break\n    time.sleep(1)", []),
        ("for _ in range(9):\n    for each in all:\n        break\n    time.sleep(1)", [4]),
        ("for each in all:\n    while not found(each):\n        time.sleep(1)", []),
        ("for n in itertools.count():\n    put(n)\n    time.sleep(1)", []),
    ],
)
def test_sleeps_that_no_look_follows_are_found(code: str, lines: list[int]) -> None:
    assert needless_sleeps(ast.parse(code)) == lines
