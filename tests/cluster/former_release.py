"""The chart and the image as they were at an earlier commit: what an upgrade starts from."""

import shutil
import subprocess
import tarfile
from pathlib import Path

from .image_build import IMAGE, ROOT, cached, copied

TAG = "former"
_CHART, _SOURCE = "deploy/helm/purser", "src/purser"


def former_release(commit: str, folder: Path) -> tuple[Path, Path]:
    """The chart of a commit, and an archive of today's image with the Purser of that commit in it, tagged `former`:
    its libraries are today's. Raises CalledProcessError where this clone has no such commit."""
    tar, source, archive = folder / "tree.tar", copied(folder / "source"), folder / "image.tar"
    subprocess.run(["git", "archive", f"--output={tar}", commit, _CHART, _SOURCE], cwd=ROOT, check=True)
    shutil.rmtree(source / _SOURCE)
    with tarfile.open(tar) as opened:
        opened.extractall(source, filter="data")
    with cached() as store:
        store.write(source, f"{IMAGE}:{TAG}", archive)
    return source / _CHART, archive
