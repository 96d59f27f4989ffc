"""Build Kubernetes and what runs beside it: `python -m tests.cluster.kubernetes.build`, as root on Debian 12.

`releases.py` says which release. What is built is kept in the cache folder, and a second call returns at once. Programs
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
from .binaries import BUILT, PROXY, Binaries, MissingBinariesError
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
        version = releases.wanted() if assets else to_build("kubernetes", releases.asked())
        wanted = {} if assets else _to_fill(version)
        absent = {name: found for name, path in wanted.items() if (found := _absent(name, path))}
        from_debian = version == releases.DEBIAN and bool(absent)
        _install(
            {} if "etcd" in releases.beside(version) else apt.OLD_PACKAGES,
            apt.BUILD_PACKAGES if from_debian else {},
        )
        for name, programs in absent.items():
            target = wanted[name]
            with _filling(target) as (work, ready):
                if from_debian:
                    debian.build(programs, work, ready)
                else:
                    modules.build(name, target.name.split("-", 1)[1], programs, work, ready)


def to_build(name: str, asked: str) -> str:
    """The release for `1.32.x`: the one that is pinned, if it is of that minor version and served, or the newest.

    Raises BuildError.
    """
    if not asked.endswith(".x"):
        return asked
    pinned, programs = releases.pinned(name), PROGRAMS if name == "kubernetes" else modules.programs(name)
    if asked != releases.minor_version(pinned):
        return modules.newest(name, asked, programs)
    if releases.folder(name, pinned).is_dir() or modules.is_served(name, programs):
        return pinned
    found = modules.newest(name, asked, programs)
    say(f"the module proxy does not serve {name} {pinned}: the tests run on {found}")
    return found


def _to_fill(version: str) -> dict[str, Path]:
    """Folders of all that is built for a release of Kubernetes, by module."""
    versions = {
        name: to_build(name, releases.minor_version(releases.pinned(name))) for name in releases.beside(version)
    }
    return {name: releases.folder(name, each) for name, each in {"kubernetes": version, **versions}.items()}


def _absent(name: str, folder: Path) -> tuple[str, ...]:
    """Programs that are to be built into a folder. Of 1.20 there is no kube-proxy: no test asks for one; and there is
    no kubectl where a newer one is found."""
    if name != "kubernetes":
        programs = modules.programs(name)
    elif folder != releases.folder("kubernetes", releases.DEBIAN):
        programs = (*PROGRAMS, PROXY)
    else:
        programs = BUILT if Binaries.chosen().has("kubectl") else PROGRAMS
    return tuple(each for each in programs if not (folder / each).exists())


def _install(*groups: dict[str, str]) -> None:
    missing = apt.missing_packages(*groups)
    if missing:
        say(f"installing {' '.join(missing)}")
        apt.install(missing)


@contextlib.contextmanager
def _filling(target: Path) -> Iterator[tuple[Path, Path]]:
    """Folders to work in and to fill; what is in the second goes to the target at the end, each program in one step."""
    _remove_dead_builds()
    # Beside the target, so that the last step is a rename.
    work = Path(tempfile.mkdtemp(prefix="build-", dir=cache_folder()))
    try:
        ready = work / "ready"
        ready.mkdir()
        yield work, ready
        target.mkdir(exist_ok=True)
        for each in ready.iterdir():
            each.rename(target / each.name)
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
