"""`python -m tests.gate [LANE ...]`: runs lanes, all of them unless some are named, and prints one table at the end."""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .lanes import FAST, GATE, Lane
from .runner import LaneResult, Runner
from .table import passes, table

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / ".gate"
"""Ignored by git: reports of the last run of each lane, their seconds, and the last commit that passed."""


_FAST_OPTIONS = ("-q", "-m", "not gate", "-r", "fE")
"""A newcomer sees what failed. What was skipped is a number in the table."""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.clone:
        return _run_clone(options.lanes)
    every = FAST if options.fast else GATE
    lanes = [lane for lane in every if not options.lanes or lane.name in options.lanes]
    reports = options.reports or RESULTS
    tier, own = ("fast", _FAST_OPTIONS) if options.fast else ("gate", ())
    runner = Runner(REPOSITORY, reports / tier, {"PURSER_TIER": tier}, [*own, *shlex.split(options.pytest)])
    return _run(runner, lanes, side_by_side=options.fast)


def _run(runner: Runner, lanes: Sequence[Lane], *, side_by_side: bool) -> int:
    file = runner.folder / "seconds.json"
    before = _seconds(file)
    results = runner.run_side_by_side(lanes) if side_by_side else [runner.run(lane) for lane in lanes]
    file.write_text(json.dumps({**before, **_seconds_of(results)}, indent=2))
    print("\n".join(["", *table(results, before)]), flush=True)
    return 0 if passes(results) else 1


def _seconds(file: Path) -> Mapping[str, float]:
    return json.loads(file.read_text()) if file.exists() else {}


def _seconds_of(results: Sequence[LaneResult]) -> dict[str, float]:
    return {result.name: round(result.seconds, 1) for result in results}


def _run_clone(lanes: Sequence[str]) -> int:
    """The gate on a clean clone of HEAD; its reports stay here, and the commit is written down if all lanes passed."""
    commit = _git("rev-parse", "HEAD")
    with _clone(commit) as clone:
        command = ["bash", clone / ".ci" / "run", f"--reports={RESULTS}", *lanes]
        status = subprocess.run(command, cwd=clone, check=False).returncode
    if status == 0 and set(lanes) in (set(), set(_NAMES)):
        with (RESULTS / "green").open("a") as green:
            print(commit, file=green)
    return status


@contextmanager
def _clone(commit: str) -> Iterator[Path]:
    """A clone beside the repository, so that what stands beside it is found there, too."""
    folder = Path(tempfile.mkdtemp(prefix="purser-gate-", dir=REPOSITORY.parent))
    try:
        _git("clone", "--quiet", "--no-checkout", str(REPOSITORY), str(folder))
        _git("-C", str(folder), "checkout", "--quiet", commit)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", REPOSITORY, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


_NAMES = [lane.name for lane in GATE]


def _lane(name: str) -> str:
    if name not in _NAMES:  # argparse's own choices refuse an empty list of lanes
        raise argparse.ArgumentTypeError(f"there is no lane {name!r}, only {', '.join(_NAMES)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gate",
        description="Run the lanes of the gate, all of them even if one fails, and print one table at the end.",
        epilog="example: python -m tests.gate --clone unit lab",
    )
    parser.add_argument("lanes", nargs="*", metavar="LANE", type=_lane, help=", ".join(_NAMES))
    parser.add_argument("--clone", action="store_true", help="run .ci/run on a clean clone of HEAD")
    parser.add_argument(
        "--fast", action="store_true", help="run unit and lab side by side, without tests that take long"
    )
    parser.add_argument("--pytest", default="", metavar="OPTIONS", help="options of every run of pytest")
    parser.add_argument("--reports", type=Path, metavar="FOLDER", help="where reports go (.gate)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
