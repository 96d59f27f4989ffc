"""Measures how hard the source is to enter, of one checkout or of two side by side.

    git worktree add --detach /tmp/before 8f6b910
    python scripts/measure_source.py /tmp/before . --seconds test:412:148 -o table

Sizes are of src/purser without generated code. Imports are of Purser's own modules. The way of one pod is what runs for
a request in steady state (scripts/trace_pod.py): of the process that runs this, Python and packages serve both trees.
Seconds of test tiers are what you say they are: nothing is run to measure them.
"""

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

GENERATED = ("_pb2.py", "_pb2_grpc.py")
SMALL_LINES = 40
TRACER = Path(__file__).with_name("trace_pod.py")
TRACE_TIMEOUT_S = 120

Figures = dict[str, float]


def measured(tree: Path, *, trace: bool) -> Figures:
    """All figures of a checkout, by name."""
    src = tree.resolve() / "src"
    modules = {name_of(path, src): path for path in sorted((src / "purser").rglob("*.py")) if not is_generated(path)}
    if not modules:
        raise SystemExit(f"{tree} has no src/purser")
    parsed = {name: ast.parse(path.read_text()) for name, path in modules.items()}
    figures = {**sizes(modules.values()), **class_names(parsed.values()), **imports(parsed, modules)}
    return {**figures, **(way_of_a_pod(src) if trace else {})}


def is_generated(path: Path) -> bool:
    return path.name.endswith(GENERATED)


def name_of(path: Path, src: Path) -> str:
    """The name that a file is imported by."""
    return ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__")


def sizes(files: Collection[Path]) -> Figures:
    lines = sorted(len(path.read_text().splitlines()) for path in files)
    return {
        "files": len(lines),
        "lines": sum(lines),
        "lines of a file: median": statistics.median(lines),
        "lines of a file: p90": p90(lines),
        f"files under {SMALL_LINES} lines": sum(count < SMALL_LINES for count in lines),
    }


def class_names(trees: Collection[ast.Module]) -> Figures:
    found = Counter(
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {"public class names defined twice or more": sum(count > 1 for count in found.values())}


def imports(parsed: Mapping[str, ast.Module], modules: Mapping[str, Path]) -> Figures:
    importers: dict[str, set[str]] = defaultdict(set)
    counts = []
    for name, tree in parsed.items():
        is_package = modules[name].name == "__init__.py"
        targets = set(imported(tree, name, is_package=is_package, known=set(parsed))) - {name}
        counts.append(len(targets))
        for target in targets:
            importers[target].add(name)
    return {
        "imports of a module: mean": round(statistics.mean(counts), 1),
        "imports of a module: p90": p90(counts),
        "imports of a module: most": max(counts),
        "modules with one importer": sum(len(found) == 1 for found in importers.values()),
    }


def imported(tree: ast.Module, name: str, *, is_package: bool, known: set[str]) -> Iterator[str]:
    """The modules of ``known`` that one imports; a name out of a package's ``__init__`` counts as the package."""
    package = name if is_package else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known or base in known:
                    yield inner if inner in known else base


def way_of_a_pod(src: Path) -> Figures:
    """Traced in a process of its own, with the tree's own sources."""
    environment = {**os.environ, "PYTHONPATH": str(src)}
    command = [sys.executable, str(TRACER)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TRACE_TIMEOUT_S)
    if ran.returncode:
        raise SystemExit(f"{TRACER.name} failed on {src}:\n{ran.stderr[-2000:]}")
    figures: Figures = {}
    for verb, trace in json.loads(ran.stdout).items():
        figures[f"{verb}: modules"] = len(trace["modules"])
        figures[f"{verb}: modules of core"] = sum(name.startswith("purser.core.") for name in trace["modules"])
        figures[f"{verb}: functions"] = len(trace["functions"])
        figures[f"{verb}: calls"] = trace["calls"]
        figures[f"{verb}: types of arguments"] = len(trace["types"])
    return figures


def p90(numbers: Sequence[int]) -> float:
    return round(statistics.quantiles(numbers, n=10, method="inclusive")[-1])


def seconds(text: str) -> tuple[str, list[float]]:
    """A tier and its seconds, one for each tree."""
    tier, *numbers = text.split(":")
    if not tier or not numbers:
        raise argparse.ArgumentTypeError("should be TIER:SECONDS, or TIER:SECONDS:SECONDS for two trees")
    try:
        return f"seconds of {tier}", [float(number) for number in numbers]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def table(columns: Mapping[str, Figures]) -> Iterator[str]:
    """In Markdown, a row a figure."""
    names = list(dict.fromkeys(name for figures in columns.values() for name in figures))
    yield f"| | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    for name in names:
        cells = (f"{figures[name]:,.10g}" if name in figures else "" for figures in columns.values())
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE", help="one checkout, or two: before and after")
    parser.add_argument("--seconds", type=seconds, action="append", default=[], metavar="TIER:BEFORE[:AFTER]")
    parser.add_argument("--no-trace", action="store_true", help="leave the way of one pod out")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    if len(options.trees) > 2:
        parser.error("one or two trees")
    titles = ["now"] if len(options.trees) == 1 else ["before", "after"]
    columns = {
        title: measured(tree, trace=not options.no_trace) for title, tree in zip(titles, options.trees, strict=True)
    }
    for tier, numbers in options.seconds:
        for title, number in zip(titles, numbers, strict=False):
            columns[title][tier] = number
    print(json.dumps(columns, indent=1) if options.output == "json" else "\n".join(table(columns)))


if __name__ == "__main__":
    main()
