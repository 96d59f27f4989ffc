"""Compile the simulated library once per content.

The result is kept in the user's cache folder under a hash of source, flags and compiler, so that the second lab on a
machine starts without compiling.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog

SOURCE_DIR = Path(__file__).with_name("library")

FLAGS = (
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
    # Several copies live in one process: each must call its own functions.
    "-Wl,-Bsymbolic",
    "-Wl,-soname,libnvidia-ml.so.1",
)
LIBRARIES = ("-ldl",)

_COMPILERS = ("cc", "gcc", "clang")
log = structlog.get_logger("purser.lab")


def find_compiler() -> str | None:
    """The path of a C compiler, or None."""
    return next(filter(None, map(shutil.which, _COMPILERS)), None)


def compiled_library(extra_flags: Sequence[str] = (), cache: Path | None = None) -> Path | None:
    """The compiled library; None where there is no compiler, or one that cannot build it (the log says why)."""
    compiler = find_compiler()
    if compiler is None:
        log.info("No C compiler found, simulating the driver in Python", looked_for=_COMPILERS)
        return None
    flags = (*FLAGS, *extra_flags)
    folder = cache if cache is not None else cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        library = folder / f"libnvidia-ml-{_digest(compiler, flags)}.so.1"
        with (folder / "compile.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not library.exists():
                _compile(compiler, flags, library)
    except (OSError, subprocess.CalledProcessError) as error:
        output = getattr(error, "stderr", "") or ""
        log.warning("Failed to compile the simulated driver", error=str(error), output=output[-2000:])
        return None
    return library


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/purser``, by default ``~/.cache/purser``."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(configured) if configured else Path.home() / ".cache") / "purser"


def _digest(compiler: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCE_DIR.glob("*.[ch]")):
        digest.update(path.read_bytes())
    digest.update("\0".join((compiler, *flags)).encode())
    return digest.hexdigest()[:16]


def _compile(compiler: str, flags: Sequence[str], library: Path) -> None:
    """Build beside the target and rename: a compiler that is killed leaves no half library behind."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        built = Path(folder) / "built.so"
        sources = map(str, sorted(SOURCE_DIR.glob("*.c")))
        command = [compiler, *flags, *sources, "-o", str(built), *LIBRARIES]
        subprocess.run(command, check=True, capture_output=True, text=True)
        built.replace(library)
