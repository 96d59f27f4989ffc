"""What is public is found by its name alone, generated code aside."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import purser

SRC = Path(purser.__file__).parent
GENERATED = "_pb2"


def modules():
    for path in SRC.rglob("*.py"):
        if GENERATED not in path.name:
            yield str(path.relative_to(SRC)), ast.parse(path.read_text())


def is_public(name):
    return not name.startswith("_")


def number(node):
    """The value of what is written with numbers alone, else None."""
    if all(isinstance(each, ast.Constant | ast.BinOp | ast.operator) for each in ast.walk(node)):
        value = eval(ast.unparse(node))
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None


def test_no_public_class_name_stands_twice():
    found = defaultdict(list)
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and is_public(node.name):
                found[node.name].append(path)
    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_no_public_constant_is_one_number_here_and_another_there():
    found = defaultdict(dict)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.Assign) and (value := number(node.value)) is not None:
                for target in node.targets:
                    if isinstance(target, ast.Name) and is_public(target.id):
                        found[target.id][path] = value
    assert len(found) > 100
    assert {name: places for name, places in found.items() if len(set(places.values())) > 1} == {}


def attributes(tree):
    """Of each class: what it defines itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{each.name}"
                elif isinstance(each, ast.Assign | ast.AnnAssign):
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    yield from (f"{node.name}.{target.id}" for target in targets if isinstance(target, ast.Name))


def test_what_docstrings_send_to_is_there():
    there, named = set(), defaultdict(set)
    for path, tree in modules():
        there |= set(attributes(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                for name in re.findall(r"\b[Ss]ee `([A-Z]\w*[.]\w+)`", ast.get_docstring(node) or ""):
                    named[name].add(path)
    assert len(named) > 10
    assert {name: paths for name, paths in named.items() if name not in there} == {}
