"""What Purser imports: wheels from PyPI, in the versions and with the digests of requirements.lock."""

import email
import io
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .oci import File
from .saying import ImageError, say, sha256

PYTHON = "3.11"
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
"""Where Debian's Python looks for what Debian did not package."""

_GLIBC = 36
"""Of Debian 12: 2.36."""

_PLATFORMS = (*(f"manylinux_2_{minor}_x86_64" for minor in range(_GLIBC, 4, -1)), "manylinux2014_x86_64")
_UNUSED = re.compile(r"(^|/)tests/|\.(pyi|pyx|pxd|h|hpp|c|cpp|a|lib)$")
"""What no program imports: tests, and what compilers read."""


@dataclass(frozen=True)
class Pin:
    """One entry of the lock that counts in the image."""

    name: str
    version: str
    hashes: frozenset[str]
    """SHA-256 of each of its files that will do, in hexadecimal."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that lies here."""

    path: Path

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal."""
        return sha256(self.path.read_bytes())

    def metadata(self) -> Message:
        """What it says of itself."""
        with zipfile.ZipFile(self.path) as archive:
            name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(archive.read(name))

    @property
    def name(self) -> str:
        """Its normalized name."""
        return canonicalize_name(self.metadata()["Name"])

    def requires(self, extras: Iterable[str] = ()) -> list[Requirement]:
        """What it wants in the image."""
        said = [Requirement(each) for each in self.metadata().get_all("Requires-Dist", [])]
        return [each for each in said if _counts(each, extras)]

    def files(self) -> dict[str, File]:
        """What the image has of it. Raises ImageError for one that brings more than modules."""
        with zipfile.ZipFile(io.BytesIO(self.path.read_bytes())) as archive:
            names = [each for each in archive.namelist() if not each.endswith("/")]
            kept = [each for each in names if not _UNUSED.search(each) and ".data/scripts/" not in each]
            if odd := [each for each in kept if ".data/" in each.partition("/")[0] + "/"]:
                raise ImageError(f"{self.path.name} has {odd[0]}, which belongs outside of Python's folder")
            return {f"{SITE}/{each}": File(archive.read(each)) for each in kept}


def environment() -> dict[str, str]:
    """What markers of requirements read, as it is in the image."""
    return {
        **{name: str(value) for name, value in default_environment().items()},
        "implementation_name": "cpython",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{PYTHON}.2",
        "python_version": PYTHON,
        "sys_platform": "linux",
    }


def read_lock(text: str) -> dict[str, Pin]:
    """By name, the entries of a lock with hashes whose markers hold in the image."""
    pins: dict[str, Pin] = {}
    for entry in re.findall(r"^[^\s#].*\n(?:[ \t].*\n)*", text, re.MULTILINE):
        requirement = Requirement(entry.partition("\\")[0].strip())
        if _counts(requirement, ()):
            name = canonicalize_name(requirement.name)
            version = str(requirement.specifier).removeprefix("==")
            pins[name] = Pin(name, version, frozenset(re.findall(r"--hash=sha256:(\w{64})", entry)))
    return pins


def wanted(lock: str, project: str, extras: Sequence[str], cache: Path) -> list[Wheel]:
    """The wheels that a pyproject.toml asks for, and theirs, out of the cache or downloaded. Raises ImageError."""
    pins = read_lock(lock)
    asked = tomllib.loads(project)["project"]
    lines = [*asked["dependencies"], *(each for extra in extras for each in asked["optional-dependencies"][extra])]
    new = {canonicalize_name(each.name): each for each in map(Requirement, lines) if _counts(each, extras)}
    found: dict[str, Wheel] = {}
    while new:
        if absent := sorted(new.keys() - pins.keys()):
            raise ImageError(f"requirements.lock has no {', '.join(absent)}: lock them again (CONTRIBUTING.md)")
        found |= fetch([pins[name] for name in sorted(new)], cache)
        asked_by = [each for name, by in new.items() for each in found[name].requires(by.extras)]
        new = {canonicalize_name(each.name): each for each in asked_by if canonicalize_name(each.name) not in found}
    return [found[name] for name in sorted(found)]


def fetch(pins: Sequence[Pin], cache: Path) -> Mapping[str, Wheel]:
    """The wheels by name. Raises ImageError."""
    cache.mkdir(parents=True, exist_ok=True)
    absent = [pin for pin in pins if _cached(pin, cache) is None]
    if absent:
        _download(absent, cache)
    found = {pin.name: _cached(pin, cache) for pin in pins}
    if lost := [name for name, path in found.items() if path is None]:
        raise ImageError(f"pip brought no wheel of {', '.join(lost)}")
    return {name: Wheel(path) for name, path in found.items() if path is not None}


def _download(pins: Sequence[Pin], cache: Path) -> None:
    say(f"downloading {', '.join(pin.name for pin in pins)}")
    text = "".join(
        f"{pin.name}=={pin.version} {' '.join(f'--hash=sha256:{each}' for each in sorted(pin.hashes))}\n"
        for pin in pins
    )
    with tempfile.TemporaryDirectory(dir=cache, prefix="pip-") as work:
        asked = Path(work, "requirements.txt")
        asked.write_text(text)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
        command += [*(f"--platform={each}" for each in _PLATFORMS), f"--dest={work}", f"--requirement={asked}"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise ImageError(f"pip: {result.stderr.strip()}")
        for path in Path(work).glob("*.whl"):
            path.replace(cache / path.name)


def _cached(pin: Pin, cache: Path) -> Path | None:
    prefix = f"{pin.name.replace('-', '_')}-{pin.version}-"
    for path in cache.glob("*.whl"):
        if path.name.lower().startswith(prefix) and sha256(path.read_bytes()) in pin.hashes:
            return path
    return None


def _counts(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**environment(), "extra": each}) for each in (*extras, ""))
