"""A class is found by its name alone: no public one stands twice, generated code aside."""

import ast
from collections import defaultdict
from pathlib import Path

import purser

SRC = Path(purser.__file__).parent
GENERATED = "_pb2"


def test_no_public_class_name_stands_twice():
    found = defaultdict(list)
    for path in SRC.rglob("*.py"):
        if GENERATED in path.name:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(SRC)))
    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
