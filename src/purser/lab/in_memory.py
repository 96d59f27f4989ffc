"""Where a lab's thousands of small files are quick to write, as those of kernels and kubelets are: in memory."""

import os
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_MIN_FREE_BYTES = 2 * 1024**3


def folder_in_memory() -> str | None:
    """A folder of the machine's memory with room for labs, where libraries can be loaded from. None where there is none
    (containers often have 64 MiB there), or where TMPDIR names another."""
    if "TMPDIR" in os.environ or not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        return None
    if os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC or shutil.disk_usage(_MEMORY).free < _MIN_FREE_BYTES:
        return None
    return str(_MEMORY)
