"""Which of kubelet's resources are GPUs, MIG devices or parts of them: those under which agents list devices.

By the names alone, because webhook and scheduler have to recognise a pod's resources before any node has them. Other
names under ``nvidia.com/`` are not GPUs' of Purser: network devices, passthrough GPUs, HAMi's amounts.
"""

import re

from purser.core.names import GPU_RESOURCE

SHARED_SUFFIX = ".shared"
"""Of a replicated resource, where the device plugin's file renames it by default."""

MIG_PREFIX = "nvidia.com/mig-"

_DEVICES = re.compile(rf"{re.escape(GPU_RESOURCE)}([.-][-.a-z0-9]*)?|{re.escape(MIG_PREFIX)}[-.a-z0-9]+", re.ASCII)


def is_gpu_resource(name: str) -> bool:
    """``nvidia.com/gpu``, what begins so with a dot or dash behind it, and ``nvidia.com/mig-...``."""
    return _DEVICES.fullmatch(name) is not None


def mig_resource(profile: str) -> str:
    """``nvidia.com/mig-1g.5gb`` of ``1g.5gb``; a plus is none of a resource's characters: ``mig-1g.5gb.me``."""
    return f"{MIG_PREFIX}{profile.replace('+', '.')}"


def gpu_resource(text: str) -> str:
    """The name of such a resource. Raises ValueError for another text."""
    if not is_gpu_resource(text):
        raise ValueError(
            f"{text[:80]!r} is not a GPU resource name: must be nvidia.com/gpu.NAME or nvidia.com/mig-NAME"
        )
    return text
