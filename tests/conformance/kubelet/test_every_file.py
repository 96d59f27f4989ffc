"""No file of the known vectors lies there unread. Another folder (`PURSER_VECTORS`) may hold what it likes."""

import importlib
from pathlib import Path

import pytest
from tests.conformance.vectors import ALL_FOLDERS, CHECKED, DEFAULT_FOLDER, VectorFile


def test_every_file_of_vectors_has_a_suite() -> None:
    found = [(folder, path) for folder in ALL_FOLDERS for path in (DEFAULT_FOLDER / folder).glob("*.json")]
    present = {VectorFile(folder, path.name) for folder, path in found}
    if not present:
        pytest.skip(f"no vectors in {DEFAULT_FOLDER}")
    for module in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.conformance.kubelet.{module.stem}")
    assert present <= CHECKED
