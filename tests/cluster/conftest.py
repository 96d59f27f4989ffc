"""Everything below this folder runs against a real Kubernetes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .kubernetes import RealCluster
from .kubernetes.fixtures import cluster, real_cluster
from .purser_image import purser_archive, purser_image
from .purser_processes import Purser

__all__ = ["cluster", "purser_archive", "purser_image", "real_cluster"]

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="module")
def purser(real_cluster: RealCluster) -> Iterator[Purser]:
    """Purser's processes on the cluster; nothing is left of them for the next module."""
    running = Purser(real_cluster)
    try:
        running.start()
        yield running
    finally:
        running.stop()
