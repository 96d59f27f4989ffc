"""Which GPUs can be shared by MPS so that limits hold. Pure."""

from purser.agent.nvml.driver import Gpu
from purser.core.sharing.advertised import VOLTA, mps_clients

MEMORY_LIMITS_SINCE_CUDA = (11, 5)
"""CUDA of the driver from which MPS limits its clients' memory."""


def mps_obstacle(gpu: Gpu, cuda_version: str | None) -> str:
    """Why MPS cannot enforce limits on a GPU; empty: it can. ``cuda_version``: the newest that the driver supports.

    A GPU in MIG mode would need a daemon for each of its devices, of which each container has its own already.
    """
    if gpu.is_partitioned:
        return "MIG mode is enabled"
    if _version(gpu.compute_capability) < VOLTA:
        has = gpu.compute_capability or "unknown"
        return f"MPS limits require compute capability 7.0 or later, but the GPU's is {has}"
    if _version(cuda_version) < MEMORY_LIMITS_SINCE_CUDA:
        return (
            f"MPS memory limits require CUDA 11.5 or later, but the driver supports "
            f"{cuda_version or 'an unknown version'}"
        )
    return ""


def max_clients(gpu: Gpu, cuda_version: str | None) -> int:
    """How many containers can be clients of a GPU's daemon at once, if each is one."""
    return mps_clients(_version(gpu.compute_capability), _version(cuda_version))


def _version(text: str | None) -> tuple[int, int]:
    """``8.0`` as numbers; (0, 0) for what is none."""
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
