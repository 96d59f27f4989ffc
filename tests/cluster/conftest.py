"""Everything below this folder runs against a real Kubernetes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .kubernetes import RealCluster, service
from .kubernetes.binaries import Binaries
from .kubernetes.fixtures import cluster, real_cluster
from .purser_image import purser_archive, purser_image
from .purser_processes import Purser

__all__ = ["cluster", "purser_archive", "purser_image", "real_cluster"]

_HERE = Path(__file__).parent

os.environ.setdefault("GOGC", "400")  # memory is cheap: collecting garbage is a quarter of what kube-apiserver does


LONGEST = (
    "test_kubelet_twin",
    "test_scenarios",
    "test_lab_on_real_control_plane",
    "test_chart",
    "test_operator",
    "test_amounts",
    "test_several_nodes",
    "test_operator_incidents",
)
"""Files that come first, so that two workers, who take one after the other, end at the same time."""
SLOW = "test_running_pods_survive_restarts"
"""Tests that come first in their file: with two tests to go a worker is given its next file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def _place(item: pytest.Item) -> tuple[int, bool]:
    file = item.path.stem
    return LONGEST.index(file) if file in LONGEST else len(LONGEST), not item.name.startswith(SLOW)


@pytest.fixture(autouse=True)
def nothing_ends_by_itself(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever Purser asks of it. Only Purser's kube-scheduler may, without its Lease, and kubelet before 1.24."""
    yield
    if "real_cluster" in request.fixturenames:
        may_end = ("purser-kube-scheduler", *(("kubelet",) if Binaries.find().version < (1, 24) else ()))
        ended = [each for each in service.ended if not each.startswith(may_end)]
        service.ended.clear()
        assert not ended, f"ended by themselves: {', '.join(ended)}"


@pytest.fixture(scope="module")
def purser(real_cluster: RealCluster) -> Iterator[Purser]:
    """Purser's processes on the cluster; nothing is left of them for the next module."""
    running = Purser(real_cluster)
    try:
        running.start()
        yield running
    finally:
        running.stop()
