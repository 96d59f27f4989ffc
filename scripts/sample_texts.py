"""Draws texts that users read, and names in the code, for a reading by somebody who did not write them.

A text is a sentence in the source (help, event, condition, refusal, warning, log message, error, help of a metric) or
in the documentation. `--all` lists every text of one kind, with its place, to edit them in one go.

Example: scripts/sample_texts.py --seed 7 --texts 80 --names 40
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "purser"
GENERATED = ("_pb2", "kubeletapi")
WORDS = re.compile(r"[A-Za-z]{2,}")
FEWEST_WORDS = 4
"""Of a text in the source; shorter ones are keys, values and parts."""
COMMANDS = {"command", "group"}
"""Decorators whose function's docstring is a help text."""


def main() -> None:
    options = _parser().parse_args()
    texts = [*texts_of_source(), *sentences_of_pages()] if options.docs else list(texts_of_source())
    names = sorted(set(names_of_source()))
    if options.all:
        print("\n".join(f"{place}: {text}" for place, text in texts if options.all in place))
        return
    chosen = random.Random(options.seed)
    print(f"# {options.texts} of {len(texts)} texts, seed {options.seed}")
    for place, text in chosen.sample(texts, options.texts):
        print(f"{place}: {text}")
    print(f"# {options.names} of {len(names)} names, seed {options.seed}")
    for name, place in chosen.sample(names, options.names):
        print(f"{place}: {name}")


def texts_of_source() -> Iterator[tuple[str, str]]:
    """The place of each text of the source, and the text; what is filled in stands as ``{...}``."""
    for file, tree in _trees():
        docstrings = {id(each) for each in _docstrings(tree)}
        parts = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
        for each in ast.walk(tree):
            if id(each) in docstrings or id(each) in parts or not isinstance(each, ast.Constant | ast.JoinedStr):
                continue
            text = _text(each)
            if len(WORDS.findall(text)) >= FEWEST_WORDS and " " in text:
                yield f"{file.relative_to(ROOT)}:{each.lineno}", " ".join(text.split())


def sentences_of_pages() -> Iterator[tuple[str, str]]:
    """Lines of prose and cells of tables of README and documentation, split into sentences."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        is_code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            if is_code or line.startswith("#"):
                continue
            for sentence in re.split(r"(?<=[.:?]) |\|", line.strip("-* ")):
                if len(WORDS.findall(sentence)) >= FEWEST_WORDS:
                    yield f"{page.relative_to(ROOT)}:{number}", sentence.strip()


def names_of_source() -> Iterator[tuple[str, str]]:
    """Names of classes, functions, parameters and locals, each with one place."""
    found: dict[str, str] = {}
    for file, tree in _trees():
        for each in ast.walk(tree):
            match each:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    pass
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                    pass
                case _:
                    continue
            if not name.startswith("__") and len(name) > 1:
                found.setdefault(name, f"{file.relative_to(ROOT)}:{each.lineno}")
    yield from found.items()


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for file in sorted(SOURCE.rglob("*.py")):
        if not any(part in str(file) for part in GENERATED):
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def _docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """All strings that stand alone, except those of commands, which are their help."""
    for each in ast.walk(tree):
        body = getattr(each, "body", None)
        if not isinstance(body, list):
            continue
        is_command = any(_decorates(decorator) for decorator in getattr(each, "decorator_list", ()))
        for statement in body:
            if isinstance(statement, ast.Expr) and not is_command:
                yield statement.value


def _decorates(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) in COMMANDS


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}" for part in node.values
    )


def _parser() -> argparse.ArgumentParser:
    first, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=int, default=80, help="how many texts to draw (default: 80)")
    parser.add_argument("--names", type=int, default=40, help="how many names to draw (default: 40)")
    parser.add_argument("--docs", action="store_true", help="draw from the documentation, too")
    parser.add_argument("--all", metavar="FOLDER", help="list all texts of a folder instead, such as src/purser/cli")
    return parser


if __name__ == "__main__":
    main()
