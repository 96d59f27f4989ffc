"""nvidia-smi of the node's driver, which the image has none of: run in the driver's root or the host's."""

import subprocess
import sys
from pathlib import Path

from purser.agent.inventory.driver_roots import DriverPlace
from purser.agent.nvml.library import find_library

RESET_TIMEOUT_S = 120.0

MAX_ERROR_CHARACTERS = 500
"""Characters of what nvidia-smi said."""

CHROOT = (
    *(sys.executable, "-I", "-S", "-c"),
    "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); os.execvp(sys.argv[2], sys.argv[2:])",
)
"""What `chroot ROOT PROGRAM...` does: the image has no program of that name. Needs CAP_SYS_CHROOT."""
_SMI = ("usr/bin/nvidia-smi", "bin/nvidia-smi", "usr/sbin/nvidia-smi", "sbin/nvidia-smi")


class ResetError(Exception):
    """A GPU was not reset; the message has nvidia-smi's words."""


def smi_command(host_root: Path, place: DriverPlace) -> list[str]:
    """In the driver's root where that is a whole one; a folder with nothing but the driver is used from the host's."""
    root = host_root / place.root.lstrip("/")
    if place.root == place.dev_root:
        return [str(root), "nvidia-smi"]
    found = next((each for each in _SMI if (root / each).exists()), _SMI[0])
    library = find_library((root,)) or ""
    preload = f"LD_PRELOAD=/{Path(library).relative_to(host_root)}" if library else "LD_PRELOAD="
    return [str(host_root), "env", preload, str(Path(place.root) / found)]


def reset_gpu(host_root: Path, place: DriverPlace | None, gpu: str) -> None:
    """Reset a GPU: NVML has no call for it. nvidia-smi refuses where any process has the GPU open. Blocks for seconds.

    ``gpu``: its PCI address, or its uuid where it has none: looking a uuid up asks every GPU, and fails for one that is
    lost. Raises `ResetError`.
    """
    if place is None:
        raise ResetError("the driver was not found")
    if not gpu:  # nvidia-smi might take it for all of them
        raise ResetError("neither the GPU's PCI address nor its UUID is known")
    command = [*CHROOT, *smi_command(host_root, place), "--gpu-reset", "-i", gpu]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=RESET_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        output = (getattr(error, "stderr", None) or b"") + b"\n" + (getattr(error, "stdout", None) or b"")
        lines = output.decode(errors="replace").split("\n")
        raise ResetError(" ".join(filter(None, map(str.strip, lines)))[:MAX_ERROR_CHARACTERS] or str(error)) from error
