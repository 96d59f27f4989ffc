"""Small files that others may have put in place of what is expected: a pipe, a device, a link, one without end."""

import errno
import os
import stat
from pathlib import Path


def read_head(path: Path, max_bytes: int) -> bytes:
    """The first bytes of a file. Raises OSError, also for what is not a file.

    What is not a file is never opened: a pipe waits for its other end, and a watchdog's device restarts the machine.
    """
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(f"/proc/self/fd/{found}", "rb") as file:  # noqa: PTH123  /proc/self/fd names the checked file
            return file.read(max_bytes)
    finally:
        os.close(found)


def read_tail(path: Path, max_bytes: int) -> bytes:
    """The last bytes of a file, as `read_head` reads the first ones."""
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(f"/proc/self/fd/{found}", "rb") as file:  # noqa: PTH123  no Path object
            file.seek(max(0, status.st_size - max_bytes))
            return file.read(max_bytes)
    finally:
        os.close(found)


def temporary_path(path: Path) -> Path:
    """What takes a file's place once it is whole."""
    return path.with_name(f".{path.name}.new")


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in the place of what is there, so that a crash at any point leaves the old or the new one.

    Nothing that is in its draft's place is followed or waited for. The draft is hidden, for those who read all files
    of a folder. Raises OSError.
    """
    draft = temporary_path(path)
    draft.unlink(missing_ok=True)
    with draft.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
