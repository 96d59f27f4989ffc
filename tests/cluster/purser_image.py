"""Purser's image, built once for all tests that run pods of it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from purser import __version__

from .kubernetes import RealCluster, machine

ROOT = Path(__file__).parents[2]
REFERENCE = f"docker.io/library/purser:{__version__}"
"""What nodes know it by, who were given the archive; the chart's default is the same without the registry."""


@pytest.fixture(scope="session")
def purser_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive; its bill of materials lies beside it. Debian may serve newer packages than the lock names: they are
    taken, for a security update of Debian's is not a failure of Purser's. The workers of a run share it."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "image"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            command = [sys.executable, "-m", "deploy.image", f"--output={folder}", "--newest"]
            # Where the machine never built it, packages are fetched.
            subprocess.run([*machine.outside(), *command], cwd=ROOT, check=True)
            (folder / "built").touch()
    return next(folder.glob("*.oci.tar"))


@pytest.fixture(scope="session")
def purser_image(real_cluster: RealCluster, purser_archive: Path) -> str:
    """The image on the cluster's node: its reference."""
    real_cluster.containerd.import_image(purser_archive)
    return REFERENCE
