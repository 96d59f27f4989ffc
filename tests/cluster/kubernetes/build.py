"""Build Kubernetes from Debian's source package: `python -m tests.cluster.kubernetes.build`, as root on Debian 12.

Debian ships no kube-apiserver and no kubelet, but the source package `kubernetes` holds the complete upstream tree with
its vendor folder. It is fetched from the mirrors the machine uses anyway, built once (4 to 11 minutes on two cores) and
kept in the cache folder; a second call returns at once. Programs named by `KUBEBUILDER_ASSETS` make all of it needless.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import apt
from .binaries import BUILT, KUBERNETES_VERSION, Binaries, MissingBinariesError, built_folder, cache_folder

TARGETS = (*BUILT, "kubectl")

_GO = Path("/usr/lib/go-1.19/bin")
"""Go 1.19 is the oldest in Debian 12 and the newest that still builds this tree."""

_COMMIT = "faecb196815e248d3ecfb03c680a4507229c2a56"
"""Upstream's commit of v1.20.2; the tarball has no git data, without it the version reads v0.0.0."""


_REFLECT2 = "github.com/modern-go/reflect2"
"""Go 1.18 changed what this library of the tree reaches into: its version there, 1.0.1, crashes the API server with
`unexpected fault address` as soon as a webhook answers with a patch. Debian has 1.0.2, which was made for that."""


class BuildError(RuntimeError):
    """The build cannot go on; the message says what is wrong and what to do."""


def main() -> int:
    """Install what is missing, build what is not in the cache; prints progress. Returns the exit status."""
    try:
        ensure_programs()
        found = Binaries.find()
    except (BuildError, apt.AptError, MissingBinariesError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _say(f"Kubernetes {'.'.join(map(str, found.version))} is ready in {found.folder}")
    return 0


def ensure_programs() -> None:
    """Make sure that every program of the cluster is on this machine."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        _say(f"KUBEBUILDER_ASSETS names {assets}: nothing is built")
    with _lock():
        build = not assets and not built_folder().exists()
        missing = apt.missing_packages(for_build=build)
        if missing:
            _say(f"installing {' '.join(missing)}")
            apt.install(missing)
        if build:
            _build()


def _build() -> None:
    _remove_dead_builds()
    # Beside the target, so that the last step is a rename. Everything the build writes, Go's cache too, lies within.
    work = Path(tempfile.mkdtemp(prefix="build-", dir=cache_folder()))
    try:
        tree = work / "src/k8s.io/kubernetes"
        _say("fetching the source package")
        _unpack(apt.fetch_source("kubernetes", work), tree)
        _replace_reflect2(tree)
        _say(f"building {', '.join(TARGETS)}: 4 to 11 minutes on two cores")
        _make(tree, _environment(work))
        ready = work / "ready"
        ready.mkdir()
        for name in TARGETS:
            shutil.copy2(tree / "_output/bin" / name, ready / name)
        ready.rename(built_folder())
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unpack(source: Path, tree: Path) -> None:
    if KUBERNETES_VERSION not in source.name:
        raise BuildError(f"the mirror's source package is {source.name}, not Kubernetes {KUBERNETES_VERSION}")
    tree.mkdir(parents=True)
    subprocess.run(["tar", "-xf", source, "--strip-components=1", "-C", tree], check=True)


def _replace_reflect2(tree: Path) -> None:
    vendored = tree / "vendor" / _REFLECT2
    shutil.rmtree(vendored)
    shutil.copytree(Path("/usr/share/gocode/src") / _REFLECT2, vendored)


def _environment(work: Path) -> Mapping[str, str]:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    return {
        "HOME": str(work),
        "PATH": f"{_GO}:/usr/sbin:/usr/bin:/sbin:/bin",
        # Newer Go versions refuse the tree's go.mod; the tree was made for GOPATH with a vendor folder.
        "GO111MODULE": "off",
        "GOPATH": str(work),
        "GOCACHE": str(work / "go-cache"),
        "GOTMPDIR": str(work),
        "CGO_ENABLED": "0",
        "KUBE_GIT_VERSION": f"v{KUBERNETES_VERSION}",
        "KUBE_GIT_MAJOR": major,
        "KUBE_GIT_MINOR": minor,
        "KUBE_GIT_COMMIT": _COMMIT,
        "KUBE_GIT_TREE_STATE": "clean",
    }


def _make(tree: Path, environment: Mapping[str, str]) -> None:
    what = " ".join(f"cmd/{name}" for name in TARGETS)
    with _heartbeat("building"):
        result = subprocess.run(["make", f"WHAT={what}"], cwd=tree, env=environment)
    if result.returncode != 0:
        raise BuildError(f"make ended with {result.returncode}; its output is above")


@contextlib.contextmanager
def _heartbeat(what: str) -> Iterator[None]:
    """A line every half minute: make is silent for minutes, and a CI runner takes silence for death."""
    done = threading.Event()
    begun = time.monotonic()

    def tell() -> None:
        while not done.wait(30):
            _say(f"still {what}, {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"kube-{KUBERNETES_VERSION}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another build on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_dead_builds() -> None:
    """Whoever holds the lock is the only one building: other work folders were left by builds that were killed."""
    for leftover in cache_folder().glob("build-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _say(text: str) -> None:
    print(f"[kubernetes] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
