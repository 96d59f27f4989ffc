"""Purser's image, built once for all tests that run pods of it."""

import fcntl
import os
from pathlib import Path

import pytest

from purser import __version__

from .image_build import IMAGE, ROOT, cached
from .kubernetes import RealCluster

REFERENCE = f"{IMAGE}:{__version__}"
"""What nodes know it by, who were given the archive; the chart's default is the same without the registry."""


@pytest.fixture(scope="session")
def purser_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, which the workers of a run share."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "image"
    folder.mkdir(exist_ok=True)
    archive = folder / "purser.oci.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            with cached() as store:
                store.write(ROOT, REFERENCE, archive)
            (folder / "built").touch()
    return archive


@pytest.fixture(scope="session")
def purser_image(real_cluster: RealCluster, purser_archive: Path) -> str:
    """The image on the cluster's node: its reference."""
    real_cluster.containerd.import_image(purser_archive)
    return REFERENCE
