"""Where a GPU's MPS daemon has its files, on the host. Pure."""

from pathlib import Path

import msgspec

PIPES, LOGS, SHARED_MEMORY = Path("/run/purser/mps"), Path("/var/log/purser/mps"), Path("/dev/shm/purser-mps")
"""Shared memory lies on the host's own file system for it: what pods put there, its limit bounds."""

PID_FILE = "nvidia-cuda-mps-control.pid"
"""In the folder of pipes, by the daemon."""


class MpsFolders(msgspec.Struct, frozen=True):
    """Of one daemon; paths of the host."""

    pipe: Path
    """Sockets by which daemon and clients speak (CUDA_MPS_PIPE_DIRECTORY)."""
    log: Path
    shm: Path
    """What daemon and clients have as /dev/shm."""


def folders_of(uuid: str) -> MpsFolders:
    """Those of a GPU's daemon. A socket's path has 107 bytes at most: there is room for the uuid and little else."""
    return MpsFolders(PIPES / uuid, LOGS / uuid, SHARED_MEMORY / uuid)
