"""Purser's image, built once for all tests that run pods of it."""

import fcntl
import os
from pathlib import Path

import pytest
from deploy.image.build import build

from .kubernetes import RealCluster

REFERENCE = "docker.io/library/purser:0.1.0"
"""What pods name it by; `purser:0.1.0`, which the chart says by default, is the same."""


@pytest.fixture(scope="session")
def purser_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive; its bill of materials lies beside it. Debian may serve newer packages than the lock names: they are
    taken, for a security update of Debian's is no failure of Purser's. The workers of a run share it."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "image"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build(folder, newest=True)
            (folder / "built").touch()
    return next(folder.glob("*.oci.tar"))


@pytest.fixture(scope="session")
def purser_image(real_cluster: RealCluster, purser_archive: Path) -> str:
    """The image on the cluster's node: its reference."""
    real_cluster.containerd.import_image(purser_archive)
    return REFERENCE
