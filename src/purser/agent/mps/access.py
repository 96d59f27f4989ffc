"""What a container gets to be a client of its GPU's MPS daemon: variables and mounts. Pure.

The daemon has no limits of its own: those of the grant are in the client's variables, and bind whatever the CUDA driver
in the container allocates or launches.
"""

from collections.abc import Mapping

import msgspec

from purser.agent.mps.folders import folders_of
from purser.core.grant.enforcement import SHARED_MEMORY
from purser.core.model import ContainerGrant

PIPE_DIR = "/tmp/nvidia-mps"
"""In the container: where clients look without a word, so that no missing variable makes one a stranger."""


class ClientAccess(msgspec.Struct, frozen=True):
    """Variables, and mounts to read and write: paths in the container and on the host."""

    environment: Mapping[str, str]
    mounts: tuple[tuple[str, str], ...]


def client_access(part: ContainerGrant, *, limited: bool) -> ClientAccess:
    """Of a container with shares of one GPU. It sees that GPU alone, and so as device 0."""
    folders = folders_of(part.shares[0].uuid)
    return ClientAccess(
        {"CUDA_MPS_PIPE_DIRECTORY": PIPE_DIR, **(_limits(part) if limited else {})},
        ((PIPE_DIR, str(folders.pipe)), (SHARED_MEMORY, str(folders.shm))),
    )


def _limits(part: ContainerGrant) -> dict[str, str]:
    memory_mib = sum(share.memory_mib for share in part.shares)
    cores_percent = sum(share.cores_percent for share in part.shares)
    limits = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_mib}M"}
    return limits | ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(cores_percent)} if 0 < cores_percent < 100 else {})
