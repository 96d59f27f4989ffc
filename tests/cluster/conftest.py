"""Everything below this folder runs against a real Kubernetes."""

from pathlib import Path

import pytest

from .kubernetes.fixtures import cluster, real_cluster
from .purser_image import purser_archive, purser_image

__all__ = ["cluster", "purser_archive", "purser_image", "real_cluster"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
