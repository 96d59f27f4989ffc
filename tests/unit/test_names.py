"""What is public is found by its name alone, generated code aside; loggers and their messages look alike."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import purser

SRC = Path(purser.__file__).parent
GENERATED = "_pb2"
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_public(name: str) -> bool:
    return not name.startswith("_")


def number(node: ast.expr) -> int | float | None:
    """The value of what is written with numbers alone, else None."""
    if all(isinstance(each, ast.Constant | ast.BinOp | ast.operator) for each in ast.walk(node)):
        value = eval(ast.unparse(node))
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None


def is_logger(value: ast.expr) -> bool:
    """Whether a logger is made there."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "structlog.get_logger"


def is_logging(function: ast.expr) -> bool:
    """Whether it is a method of a logger that is called `log`."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in LEVELS
        and isinstance(function.value, ast.Name)
        and function.value.id == "log"
    )


def definitions(tree: ast.AST) -> Iterator[Definition]:
    """All that statements define, however deep; no expression defines anything with a name of its own."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, ast.stmt | ast.excepthandler | ast.match_case):
            if isinstance(each, Definition):
                yield each
            yield from definitions(each)


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """What the class defines itself."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{node.name}.{each.name}"
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (f"{node.name}.{target.id}" for target in targets if isinstance(target, ast.Name))


@dataclass
class Names:
    """Of the whole source."""

    classes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Where public ones are defined."""
    numbers: dict[str, dict[str, int | float]] = field(default_factory=lambda: defaultdict(dict))
    """Of constants, public and private: the number in each module."""
    attributes: set[str] = field(default_factory=set)
    loggers: dict[str, str] = field(default_factory=dict)
    """By module that has one: the logger's name."""
    messages: dict[str, str] = field(default_factory=dict)
    """What loggers are given, as it is written, and one place of each."""
    sent_to: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Attributes that docstrings name, and the modules that do."""

    def add(self, path: str, tree: ast.Module) -> None:
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and is_logger(statement.value):
                self.loggers[path] = ast.unparse(statement.targets[0])
            if isinstance(statement, ast.Assign) and (value := number(statement.value)) is not None:
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        self.numbers[target.id][path] = value
        for node in (tree, *definitions(tree)):
            for name in re.findall(r"\b[Ss]ee `([A-Z]\w*[.]\w+)`", ast.get_docstring(node, clean=False) or ""):
                self.sent_to[name].add(path)
            if isinstance(node, ast.ClassDef):
                self.attributes |= set(attributes(node))
                if is_public(node.name):
                    self.classes[node.name].append(path)
        for call in ast.walk(tree) if path in self.loggers else ():
            if isinstance(call, ast.Call) and is_logging(call.func):
                for part in ast.walk(call.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        self.messages[part.value] = f"{path}:{part.lineno}"


@pytest.fixture(scope="module")
def names() -> Names:
    found = Names()
    for path in SRC.rglob("*.py"):
        if GENERATED not in path.name:
            found.add(str(path.relative_to(SRC)), ast.parse(path.read_text()))
    return found


def test_no_public_class_name_stands_twice(names: Names) -> None:
    assert len(names.classes) > 500
    assert {name: paths for name, paths in names.classes.items() if len(paths) > 1} == {}


def test_no_constant_has_different_numbers_in_different_modules(names: Names) -> None:
    assert len(names.numbers) > 100
    assert {name: places for name, places in names.numbers.items() if len(set(places.values())) > 1} == {}


def test_what_docstrings_send_to_is_there(names: Names) -> None:
    assert len(names.sent_to) > 10
    assert {name: paths for name, paths in names.sent_to.items() if name not in names.attributes} == {}


def test_every_logger_is_called_log(names: Names) -> None:
    assert len(names.loggers) > 50
    assert set(names.loggers.values()) == {"log"}


def test_messages_of_logs_begin_with_an_upper_case_letter_and_have_no_full_stop(names: Names) -> None:
    assert len(names.messages) > 100
    assert {text: place for text, place in names.messages.items() if not text[:1].isupper() or text[-1:] == "."} == {}
