"""The attributes that docstrings send to ("see `Class.attribute`") are there, generated code aside."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import purser

SOURCES = [path for path in Path(purser.__file__).parent.rglob("*.py") if "_pb2" not in path.name]
LINK = re.compile(r"\b[Ss]ee `([A-Z]\w*[.]\w+)`")


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """What the class defines itself."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield each.name
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.gate
def test_what_docstrings_send_to_is_there() -> None:
    links: set[str] = set()
    there: set[str] = set()
    for text in (path.read_text() for path in SOURCES):
        links |= set(LINK.findall(text))
        for node in ast.walk(ast.parse(text)) if "class " in text else ():
            if isinstance(node, ast.ClassDef):
                there |= {f"{node.name}.{name}" for name in attributes(node)}
    assert len(links) > 10
    assert links - there == set()
