"""Fixtures that give tests the real cluster. `tests/cluster/conftest.py` imports them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import machine
from .binaries import BUILT, Binaries, MissingBinariesError
from .cluster import RealCluster


def require_cluster() -> None:
    """Skip where a cluster cannot run; with PURSER_CLUSTER=1, as in CI, that is a failure instead."""
    _require(_no_programs() or machine.why_not())


def require_namespaces() -> None:
    """The same where a machine of its own is all that a test needs."""
    _require(machine.why_not())


def _require(reason: str | None) -> None:
    if reason is None:
        return
    if os.environ.get("PURSER_CLUSTER") == "1":
        pytest.fail(f"PURSER_CLUSTER=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def _no_programs() -> str | None:
    try:
        Binaries.find()
    except MissingBinariesError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """One cluster for each process of the session.

    PURSER_CLUSTER_LOGS names a folder that keeps its logs, KUBE_FEATURE_GATES the feature gates of all its processes.
    """
    require_cluster()
    logs, gates = os.environ.get("PURSER_CLUSTER_LOGS"), os.environ.get("KUBE_FEATURE_GATES")
    folder = Path(logs, os.environ.get("PYTEST_XDIST_WORKER", "")) if logs else None
    extra_args = {name: [f"--feature-gates={gates}"] for name in BUILT} if gates else None
    with RealCluster(logs=folder, extra_args=extra_args) as running:
        yield running


@pytest.fixture
def cluster(real_cluster: RealCluster) -> RealCluster:
    """The same, by a shorter name; the scenarios' module has a `cluster` of its own."""
    return real_cluster
