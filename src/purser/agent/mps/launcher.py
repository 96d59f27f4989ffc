"""Runs one of the driver's programs in the driver's root, where it finds its libraries, /proc and /dev.

``python launcher.py ROOT SOURCE:TARGET ... -- PROGRAM ARGUMENT ...``: each source is bound to the target below the
root, for this program and its children alone. Needs CAP_SYS_ADMIN and CAP_SYS_CHROOT. A process of its own, without the
rest of Purser: its mounts must not affect other processes.
"""

import ctypes
import os
import sys

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def main(arguments: list[str]) -> None:
    """Never returns. Raises OSError."""
    end = arguments.index("--")
    root, binds, command = arguments[0], arguments[1:end], arguments[end + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "make mounts private")
    for source, _, target in (bind.partition(":") for bind in binds):
        there = f"{root.rstrip('/')}{target}"
        os.makedirs(there, exist_ok=True)  # noqa: PTH103  without pathlib it starts in half the time
        _check(libc.mount(source.encode(), there.encode(), None, MS_BIND, None), f"bind {source} to {there}")
    os.chroot(root)
    os.chdir("/")
    os.execvp(command[0], command)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1:])
