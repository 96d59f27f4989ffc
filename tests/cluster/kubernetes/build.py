"""Build Kubernetes and what runs beside it: `python -m tests.cluster.kubernetes.build`, as root on Debian 12.

`releases.py` says which release. Each build is kept in the cache folder, and a second call returns at once. Programs
named by `KUBEBUILDER_ASSETS` make all of it needless.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from purser.lab.driver.compile import cache_folder

from . import apt, debian, modules, releases
from .binaries import BUILT, Binaries, MissingBinariesError
from .progress import BuildError, say

PROGRAMS = (*BUILT, "kubectl")


def main() -> int:
    """Install what is missing, build what is not in the cache; prints progress. Returns the exit status."""
    try:
        ensure_programs()
        found = Binaries.find()
    except (BuildError, apt.AptError, MissingBinariesError, releases.ReleaseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say(f"Kubernetes {'.'.join(map(str, found.version))} is ready in {found.folders[0]}")
    return 0


def ensure_programs() -> None:
    """Make sure that every program of the cluster is on this machine."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        say(f"KUBEBUILDER_ASSETS names {assets}: nothing is built")
    with _lock():
        version = releases.wanted()
        if version.endswith(".x") and not assets:
            version = modules.newest(releases.minor_of(version), PROGRAMS)
        wanted = releases.folders(version)
        absent = {} if assets else {name: path for name, path in wanted.items() if not path.exists()}
        from_debian = version == releases.DEBIAN and bool(absent)
        _install(
            {} if "etcd" in wanted else apt.OLD_PACKAGES,
            apt.BUILD_PACKAGES if from_debian else {},
        )
        for name, target in absent.items():
            with _filling(target) as (work, ready):
                if from_debian:
                    debian.build(PROGRAMS, work, ready)
                else:
                    modules.build(name, target.name.split("-", 1)[1], PROGRAMS, work, ready)


def _install(*groups: dict[str, str]) -> None:
    missing = apt.missing_packages(*groups)
    if missing:
        say(f"installing {' '.join(missing)}")
        apt.install(missing)


@contextlib.contextmanager
def _filling(target: Path) -> Iterator[tuple[Path, Path]]:
    """Folders to work in and to fill; the second becomes the target at the end, in one step."""
    _remove_dead_builds()
    # Beside the target, so that the last step is a rename.
    work = Path(tempfile.mkdtemp(prefix="build-", dir=cache_folder()))
    try:
        ready = work / "ready"
        ready.mkdir()
        yield work, ready
        ready.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_dead_builds() -> None:
    """Whoever holds the lock is the only one building: other work folders were left by builds that were killed."""
    for leftover in cache_folder().glob("build-*"):
        shutil.rmtree(leftover, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
