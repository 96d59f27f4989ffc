"""Builds Purser's image with buildah, as `make image` does, but without a registry: it stands on a base made of
Debian's packages. What stays the same from build to build is kept in the cache folder."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from purser.lab.driver.compile import cache_folder

from .kubernetes import machine
from .kubernetes.apt import make_root
from .kubernetes.containers import stacks_overlays

ROOT = Path(__file__).parents[2]
SOURCES = (
    ".dockerignore",
    "LICENSE",
    "README.md",
    "deploy/image",
    "pyproject.toml",
    "requirements.lock",
    "scripts/image",
    "scripts/locked.py",
    "src",
)
"""What an image is built of."""

IMAGE = "docker.io/library/purser"
"""Its name, without the tag."""

_BASE = "localhost/debian:12-slim"
_MOST_LAYERS = 300
"""In the cache's store: each change of Purser's source adds a dozen."""
_OLDEST_S = 7 * 24 * 3600
"""After that the base is made anew, of the packages that Debian serves then."""


class Store:
    """A store of images, and what builds into it."""

    def __init__(self, folder: Path, of: "Store | None" = None) -> None:
        """of: the store that has the base and the wheels; by default this one."""
        folder.mkdir(exist_ok=True)
        overlays = stacks_overlays(folder)
        configuration, pip = folder / "storage.conf", folder / "pip.conf"
        others = f'[storage.options]\nadditionalimagestores = ["{of.images}"]\n' if of else ""
        configuration.write_text(
            f'[storage]\ndriver = "{"overlay" if overlays else "vfs"}"\n'
            f'graphroot = "{folder / "images"}"\nrunroot = "{folder / "run"}"\n{others}'
        )
        pip.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        self.images: Path = folder / "images"
        self._folder = folder
        self._environment = {
            **os.environ,
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_STORAGE_CONF": str(configuration),
            "ENGINE": "buildah",
        }
        wheels = of.wheels() if of else self.wheels()
        self._options = [
            f"--build-arg=BASE={_BASE}",
            f"--secret=id=pip.conf,src={pip}",
            f"--volume={wheels}:/wheels:ro",
        ]
        if not overlays:  # each layer would be a copy of all below it
            self._options.append("--layers=false")

    def write(self, source: Path, name: str, archive: Path, *options: str) -> str:
        """Build the image of a checkout and write it as an OCI archive of that name; returns its digest."""
        built, digest = archive.with_suffix(".id"), archive.with_suffix(".digest")
        self._run(str(source / "scripts/image"), *self._options, f"--iidfile={built}", *options)
        said = f"--digestfile={digest}"
        self._run("buildah", "push", "--quiet", said, built.read_text().strip(), f"oci-archive:{archive}:{name}")
        return digest.read_text().strip()

    def make_base(self) -> None:
        """Have the base, if it is not there."""
        made = self._folder / "base"
        if made.exists():
            return
        with tempfile.TemporaryDirectory() as name:
            make_root(Path(name, "root.tar"), machine.outside())
            Path(name, "Dockerfile").write_text("FROM scratch\nADD root.tar /\n")
            self._run("buildah", "build", "--quiet", f"--tag={_BASE}", name)
        made.touch()

    def wheels(self) -> Path:
        """A folder with what the image takes from PyPI, fetched if it is not there."""
        parts = [_locked("image"), _locked("build")]
        target = self._folder / f"wheels-{hashlib.sha256(''.join(parts).encode()).hexdigest()[:16]}"
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=target.parent) as name:
                Path(name, "requirements.txt").write_text("".join(parts))
                command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
                command += ["--only-binary=:all:", f"--dest={name}/wheels", f"--requirement={name}/requirements.txt"]
                subprocess.run([*machine.outside(), *command], check=True)
                Path(name, "wheels").rename(target)
        return target

    def _run(self, *command: str) -> str:
        whole = [*machine.outside(), *command]
        done = subprocess.run(whole, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout


@contextlib.contextmanager
def cached() -> Iterator[Store]:
    """The store in the cache folder, with the base, for one run at a time."""
    folder = cache_folder() / "image"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_worn_out(folder / "store"):
            shutil.rmtree(folder / "store")
        found = Store(folder / "store")
        found.make_base()
        yield found


@contextlib.contextmanager
def empty() -> Iterator[Store]:
    """A store in which nothing was built yet, for as long as the block runs."""
    with cached() as base:
        folder = cache_folder() / "image" / "empty"
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        try:
            yield Store(folder, base)
        finally:
            shutil.rmtree(folder)


def copied(target: Path) -> Path:
    """A checkout of what an image is built of, without git's data; returns the folder."""
    for name in SOURCES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, target / name)
    return target


def _locked(part: str) -> str:
    command = (sys.executable, "scripts/locked.py", part)
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _is_worn_out(store: Path) -> bool:
    layers = [each for driver in ("overlay", "vfs") for each in (store / "images" / driver).glob("*")]
    made = store / "base"
    return len(layers) > _MOST_LAYERS or (made.exists() and time.time() - made.stat().st_mtime > _OLDEST_S)
