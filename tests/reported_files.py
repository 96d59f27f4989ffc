"""Files of users, as they reported them: small inputs that are read in place, ``shared/cases`` beside the checkout.

The folder is ``PURSER_CASES`` where that is set. A test whose file is missing is skipped.
"""

import os
from pathlib import Path

import pytest

ENVIRONMENT = "PURSER_CASES"
DEFAULT_FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "cases"


def reported(name: str) -> Path:
    """The file whose name ends so: ``fleet.yaml``."""
    folder = Path(os.environ.get(ENVIRONMENT) or DEFAULT_FOLDER)
    found = sorted(folder.glob(f"*-{name}"))
    if not found:
        pytest.skip(f"no file *-{name} in {folder}: {ENVIRONMENT} names another folder")
    return found[0]
