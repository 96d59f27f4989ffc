"""Vector suites: inputs and outputs of the real code, one pytest item for each file.

    @suites(("topology_merge.json", merges_as_observed, ALL_FOLDERS))
    def test_vectors(file: VectorFile, check: Check, check_vectors: CheckVectors) -> None:
        check_vectors(file, check)

``merges_as_observed(vector, version)`` asserts what one vector says; ``version`` is the Kubernetes version whose code
was observed (``1.20.2``). Every vector of the file runs, whatever the others did; the first failures are shown. The
folder is ``PURSER_VECTORS`` (default: ``shared/vectors`` beside the checkout), where any file may be missing: one skip.
"""

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ENVIRONMENT = "PURSER_VECTORS"
DEFAULT_FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "vectors"

TABLES_1_20 = "kubelet"
TABLES_1_36 = "kubelet/v1_36_2"
ORACLE_1_20 = "kubelet/oracle_1_20_2"
ORACLE_1_36 = "kubelet/oracle_1_36_2"
ALL_FOLDERS = (TABLES_1_20, TABLES_1_36, ORACLE_1_20, ORACLE_1_36)

SHOWN_FAILURES = 10

RUN, MEMBERSHIP = "vectors run", "vectors checked for membership"
"""Properties of a test's report."""

Vector = dict[str, Any]
Check = Callable[[Vector, str], None]
"""Takes a vector and the Kubernetes version it is of; asserts."""


class VectorFile(NamedTuple):
    """One file of vectors, which may be missing."""

    folder: str
    """Below the folder of vectors."""
    name: str

    @property
    def path(self) -> Path:
        return vectors_folder() / self.folder / self.name


CheckVectors = Callable[[VectorFile, Check], None]
"""The fixture ``check_vectors``."""


class FileResult(NamedTuple):
    """How a file went."""

    run: int
    """How many vectors."""
    membership: int
    """Of these: where the real code gave several results, so that one of them or an invariant is what is checked."""
    failures: str
    """For people; empty when there are none."""


def vectors_folder() -> Path:
    """Where the vectors are. A folder that was named and has none is a mistake, not a reason to skip."""
    named = os.environ.get(ENVIRONMENT)
    if named and not any(Path(named).glob("*/**/*.json")):
        raise pytest.UsageError(f"{ENVIRONMENT}={named}: there are no vectors in that folder")
    return Path(named or DEFAULT_FOLDER)


CHECKED: set[VectorFile] = set()
"""The files that test modules asked for when they were imported."""


def suites(*checks: tuple[str, Check, tuple[str, ...]]) -> pytest.MarkDecorator:
    """Parameters ``file`` and ``check``: for each name of a file its check, and the folders that have such a file."""
    files = [(VectorFile(folder, name), check) for name, check, folders in checks for folder in folders]
    CHECKED.update(file for file, _ in files)
    return pytest.mark.parametrize(
        ("file", "check"), [pytest.param(file, check, id=f"{file.folder}/{file.name}") for file, check in files]
    )


def run_file(file: VectorFile, check: Check) -> FileResult:
    """Check every vector of a file. Skips when the file is missing."""
    if not file.path.exists():
        pytest.skip(f"no such vectors: {file.path} ({ENVIRONMENT} names another folder)")
    document = json.loads(file.path.read_bytes())
    vectors: list[Vector] = document["vectors"]
    assert vectors, f"{file.path} holds no vectors"
    failures = [
        f"[{place}] {_title(vector)}\n{error}"
        for place, vector in enumerate(vectors)
        if (error := _error(check, vector, document["kubernetes_version"])) is not None
    ]
    heading = f"{len(failures)} of {len(vectors)} vectors of {file.path} fail"
    shown = "\n\n".join([heading, *failures[:SHOWN_FAILURES]]) if failures else ""
    return FileResult(len(vectors), sum(map(is_nondeterministic, vectors)), shown)


def is_nondeterministic(vector: Vector) -> bool:
    """Whether the real code gave several results for these inputs."""
    results = vector.get("results")
    observations: list[Vector] = [vector, *(results.values() if isinstance(results, dict) else ())]
    return any(observation.get("deterministic") is False for observation in observations)


def summary(reports: list[pytest.TestReport]) -> str | None:
    """The line about all vectors that ran; None when none did."""
    properties: list[tuple[str, Any]] = [tuple(entry) for report in reports for entry in report.user_properties]
    run, membership = (sum(value for name, value in properties if name == wanted) for wanted in (RUN, MEMBERSHIP))
    if not run:
        return None
    return f"vectors: {_spaced(run)} run, {_spaced(membership)} checked for membership (nondeterministic)"


def _title(vector: Vector) -> str:
    return str(next((vector[key] for key in ("name", "description", "id") if key in vector), "no name"))


def _error(check: Check, vector: Vector, version: str) -> str | None:
    try:
        check(vector, version)
    except AssertionError as error:
        return str(error)
    except Exception:  # a vector that breaks the code is a failure among others
        return traceback.format_exc(limit=-3)
    return None


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")
