"""The base: files of Debian 12's packages, in the versions that debian.lock names.

They are downloaded by the machine's own apt, which checks Debian's signatures; then the lock's digests are checked.
Nothing is installed: files are taken out of the packages, no maintainer script runs.
"""

import contextlib
import fnmatch
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .oci import File, Folder, Link
from .saying import ImageError, say, sha256

LOCK = Path(__file__).with_name("debian.lock")

PACKAGES = (
    "base-files",  # os-release and the licences that copyright files refer to
    "gcc-12-base",  # copyright of the two libraries of GCC
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",  # ctypes, which NVML is called through
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libssl3",
    "libstdc++6",  # grpcio, numpy
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
)

LEFT_OUT = (
    "etc/*",
    "usr/include/*",
    "usr/lib/x86_64-linux-gnu/gconv/*",
    "usr/lib/x86_64-linux-gnu/audit/*",
    "usr/lib/x86_64-linux-gnu/perl5/*",
    "usr/lib/python3.11/pydoc_data/*",
    "usr/lib/python3.11/sitecustomize.py",
    "usr/lib/python3.11/test/*",
    "usr/lib/python3.11/turtle*",
    "usr/lib/python3.11/lib-dynload/_test*",
    "usr/lib/python3.11/lib-dynload/xx*",
    # What these need is left out: terminals, databases of other programs, NIS and the checking of passwords.
    *(f"usr/lib/python3.11/lib-dynload/{name}.*" for name in ("_crypt", "_curses", "_curses_panel", "_dbm", "nis")),
    *(f"usr/lib/python3.11/lib-dynload/{name}.*" for name in ("_sqlite3", "readline")),
    "usr/share/base-files/*",
    "usr/share/bug/*",
    "usr/share/doc/*/*",
    "usr/share/gcc/*",
    "usr/share/gdb/*",
    "usr/share/lintian/*",
    "usr/share/locale/*",
    "usr/share/man/*",
    "usr/share/binfmts/*",
    "var/*",
)
"""Of these packages: patterns of paths."""

_KEPT = ("etc/debian_version", "etc/os-release", "etc/ld.so.conf.d/*", "usr/share/doc/*/copyright")
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders that Debian has below /usr since 12, whatever packages say."""


@dataclass(frozen=True)
class Pin:
    """One line of the lock."""

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the cache."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.sha256[:12]}.deb"


@dataclass(frozen=True)
class Deb:
    """A package that lies here."""

    pin: Pin
    path: Path

    def control(self) -> str:
        """What Debian says of it."""
        return _run("dpkg-deb", "--field", str(self.path)).decode()

    def files(self) -> dict[str, File | Link | Folder]:
        """What the image has of it."""
        found: dict[str, File | Link | Folder] = {}
        with tarfile.open(fileobj=io.BytesIO(_run("dpkg-deb", "--fsys-tarfile", str(self.path)))) as tar:
            for member in tar:
                path = _merged(member.name)
                if left_out(path):
                    continue
                if member.issym():
                    found[path] = Link(member.linkname)
                elif member.islnk():
                    found[path] = found[_merged(member.linkname)]
                elif member.isreg():
                    mode = 0o644 if path.endswith(".py") else member.mode & 0o755  # some modules are scripts, too
                    found[path] = File(tar.extractfile(member).read(), mode)  # type: ignore[union-attr]
        return found


def read_lock(text: str) -> list[Pin]:
    """The lines of a lock: name, version, digest."""
    return [Pin(*line.split()) for line in text.splitlines() if line and not line.startswith("#")]


def fetch(pins: Sequence[Pin], cache: Path, *, newest: bool = False) -> list[Deb]:
    """The packages, out of the cache or downloaded. Raises ImageError.

    `newest`: for one that Debian no longer serves in that version the newest is taken, and said.
    """
    cache.mkdir(parents=True, exist_ok=True)
    absent = {pin.name: pin for pin in pins if not _is_there(cache / pin.file_name, pin.sha256)}
    found = {pin.name: pin for pin in pins}
    if absent:
        say(f"downloading {', '.join(absent)}")
        with _apt(cache) as apt:
            for file in _download(apt, list(absent.values()), newest):
                got = _keep(file, cache)
                _judge(absent[got.name], got, newest)
                found[got.name] = got
    return [Deb(pin, cache / pin.file_name) for pin in found.values()]


def _download(apt: "_Apt", pins: Sequence[Pin], newest: bool) -> list[Path]:
    wanted = {f"{pin.name}={pin.version}": pin for pin in pins}
    try:
        return apt.download(*wanted)
    except ImageError as error:
        if not newest:
            raise ImageError(
                f"{error}\nDebian no longer serves what deploy/image/debian.lock names, or is not reached. Security "
                "updates replace packages: `make image-lock` writes the newest into the lock"
            ) from error
    return [file for each, pin in wanted.items() for file in _that_or_newest(apt, each, pin.name)]


def _that_or_newest(apt: "_Apt", wanted: str, name: str) -> list[Path]:
    try:
        return apt.download(wanted)
    except ImageError:
        return apt.download(name)


def renewed(cache: Path) -> str:
    """The text of a lock with the newest versions that Debian serves now. Raises ImageError."""
    cache.mkdir(parents=True, exist_ok=True)
    with _apt(cache) as apt:
        apt.update()
        pins = sorted((_keep(file, cache) for file in apt.download(*PACKAGES)), key=lambda pin: pin.name)
    head = "# Packages of Debian 12 (amd64) that Purser's image is made of; `make image-lock` renews them.\n"
    return head + "".join(f"{pin.name} {pin.version} {pin.sha256}\n" for pin in pins)


def _judge(wanted: Pin, got: Pin, newest: bool) -> None:
    if wanted != got and (wanted.version == got.version or not newest):
        expected = f"{wanted.version} {wanted.sha256}"
        raise ImageError(f"{got.name} {got.version} is {got.sha256}, not {expected} as debian.lock says")
    if wanted != got:
        say(
            f"WARNING: Debian no longer serves {wanted.name} {wanted.version}: the image has {got.version}, "
            "and another digest than the lock's. `make image-lock` renews that"
        )


class _Apt:
    """The machine's apt; where its package lists are of no use, lists of its own."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._options: list[str] = []

    def update(self) -> None:
        """Lists of its own, as of now."""
        say("reading Debian's package lists")
        for folder in ("lists/partial", "apt/archives/partial"):
            (self._work / folder).mkdir(parents=True)
        self._options = [f"-oDir::State::Lists={self._work}/lists", f"-oDir::Cache={self._work}/apt"]
        self._get("update")

    def download(self, *packages: str) -> list[Path]:
        """Their files, as the archive names them. Raises ImageError."""
        folder = Path(tempfile.mkdtemp(dir=self._work))  # one that failed leaves some of its files
        try:
            self._get("download", *packages, cwd=folder)
        except ImageError:
            if self._options:
                raise
            self.update()
            self._get("download", *packages, cwd=folder)
        return sorted(folder.glob("*.deb"))

    def _get(self, *arguments: str, cwd: Path | None = None) -> None:
        sandbox = ["-oAPT::Sandbox::User=root"] if os.geteuid() == 0 else []
        _run("apt-get", "-qq", *sandbox, *self._options, *arguments, cwd=cwd)


@contextlib.contextmanager
def _apt(cache: Path) -> Iterator[_Apt]:
    """An apt with a folder to work in, on the cache's file system."""
    with tempfile.TemporaryDirectory(dir=cache, prefix="apt-") as work:
        yield _Apt(Path(work))


def _keep(file: Path, cache: Path) -> Pin:
    name, version = (_run("dpkg-deb", "--field", str(file), each).decode().strip() for each in ("Package", "Version"))
    pin = Pin(name, version, sha256(file.read_bytes()))
    file.replace(cache / pin.file_name)
    return pin


def _is_there(path: Path, digest: str) -> bool:
    return path.exists() and sha256(path.read_bytes()) == digest


def _merged(name: str) -> str:
    path = PurePosixPath(name)
    return str(PurePosixPath("usr") / path) if path.parts and path.parts[0] in _MERGED else str(path)


def left_out(path: str) -> bool:
    """Whether the image goes without a file of a package; a path without a slash in front."""
    return any(fnmatch.fnmatch(path, each) for each in LEFT_OUT) and not any(
        fnmatch.fnmatch(path, each) for each in _KEPT
    )


def _run(*command: str, cwd: Path | None = None) -> bytes:
    if shutil.which(command[0]) is None:
        raise ImageError(f"no {command[0]} on this machine: the image is built on Debian 12")
    result = subprocess.run(command, cwd=cwd, capture_output=True)
    if result.returncode != 0:
        told = result.stderr.decode(errors="replace").strip()
        raise ImageError(f"{told} ({command[0]} ended with {result.returncode})")
    return result.stdout
