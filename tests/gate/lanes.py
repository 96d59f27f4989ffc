"""The lanes of the gate, and which test file belongs to which."""

from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
PROCESSES = "pytest.mark.processes"
"""The words in a file of tests that put it into the lane `lab`: it starts processes or a compiler."""


@dataclass(frozen=True)
class Run:
    """One command of a lane."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 600


@dataclass(frozen=True)
class Lane:
    """Commands that are judged together."""

    name: str
    runs: tuple[Run, ...]
    at_once: int = 1
    """How many of its commands run side by side."""
    second_try: bool = False
    """Whether a failed test is run once more, alone: what passes then is told as flaky, and a few may be."""


def _pytest(*arguments: str, timeout_s: float, **environment: str) -> Run:
    return Run(("python", "-m", "pytest", *arguments), tuple(environment.items()), timeout_s)


IN_ORDER = ("-p", "no:randomly")
"""Whole labs and clusters are shared by the tests of a file, in its order."""
BY_FILE = ("--dist=loadfile", "--no-loadscope-reorder")

STATIC = Lane(
    "static",
    (
        Run(("mypy",)),
        Run(("ruff", "check", ".")),
        Run(("ruff", "format", "--check", ".")),
        Run(("lint-imports",)),
        Run(("mkdocs", "build", "--strict", "--quiet")),
    ),
    at_once=2,
)


UNIT = tuple(_pytest("--lane=unit", f"--part={part}/3", timeout_s=1200) for part in (1, 2, 3))
"""Processes without a controller: to report each of ten thousand short tests to one takes as long as the test."""


def _lab(workers: int) -> Lane:
    tests = _pytest("--lane=lab", f"-n{workers}", *BY_FILE, *IN_ORDER, timeout_s=1800)
    return Lane("lab", (tests,), second_try=True)


_COMPARED = "tests/unit/core/placement/policies/test_purser_small_fleets.py"
"""Policies with one another, by whole simulations: both kernels score alike, which others of these tests show."""
NUMPY = _pytest("tests/unit/core/placement", f"--ignore={_COMPARED}", timeout_s=600, PURSER_KERNELS="numpy")
"""Placement as it decides where numba is not installed."""


MOST_FAILURES = "--maxfail=8"
"""More are one cause, such as a process that is gone, and each may wait for five minutes until it fails. The run ends
there, and what failed is not tried once more: more than three flaky tests fail the gate in any case."""


def _cluster(name: str, *arguments: str, **environment: str) -> Lane:
    build = Run(("python", "-m", "tests.cluster.kubernetes.build"), tuple(environment.items()), timeout_s=2400)
    environment["PURSER_CLUSTER"] = "1"
    tests = _pytest(
        "tests/cluster", "-n3", *BY_FILE, *IN_ORDER, MOST_FAILURES, *arguments, timeout_s=2400, **environment
    )
    return Lane(name, (build, tests), second_try=True)


GATE = (
    STATIC,
    Lane("unit", (*UNIT, NUMPY), at_once=3, second_try=True),
    _lab(4),
    _cluster("cluster"),
    _cluster("oldest", "-m", "oldest", KUBERNETES="1.20.2"),
)
FAST = (Lane("unit", UNIT, at_once=3), _lab(4))
"""What `make test` runs, side by side: the lab's tests wait for much."""


def lane_of(file: Path) -> str:
    """The lane of a file of tests: `unit`, `lab`, or `cluster`, of which `oldest` is a part."""
    below = file.relative_to(TESTS).parts[0]
    if below in ("cluster", "lab"):
        return below
    return "lab" if PROCESSES in file.read_text(encoding="utf-8") else "unit"
