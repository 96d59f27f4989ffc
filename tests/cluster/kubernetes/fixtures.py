"""Fixtures that give tests the real cluster. `tests/cluster/conftest.py` imports them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .binaries import Binaries, MissingBinariesError
from .cluster import RealCluster


def require_cluster() -> None:
    """Skip where a cluster cannot run; with PURSER_CLUSTER=1, as in CI, that is a failure instead."""
    reason = _why_not()
    if reason is None:
        return
    if os.environ.get("PURSER_CLUSTER") == "1":
        pytest.fail(f"PURSER_CLUSTER=1, but {reason}", pytrace=False)
    pytest.skip(reason)


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "a real cluster needs root: kubelet mounts, and containerd makes namespaces and cgroups"
    try:
        Binaries.find()
    except MissingBinariesError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[RealCluster]:
    """One cluster for the whole session. Its logs are kept where PURSER_CLUSTER_LOGS names a folder."""
    require_cluster()
    logs = os.environ.get("PURSER_CLUSTER_LOGS")
    with _terminated_in_order(), RealCluster(logs=Path(logs) if logs else None) as running:
        yield running


@contextmanager
def _terminated_in_order() -> Iterator[None]:
    """SIGTERM ends the session as Ctrl-C does: `timeout` and CI runners send it, and a cluster would stay behind."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(f"signal {number}")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def cluster(real_cluster: RealCluster) -> RealCluster:
    """The same, by a shorter name; the scenarios' module has a `cluster` of its own."""
    return real_cluster
