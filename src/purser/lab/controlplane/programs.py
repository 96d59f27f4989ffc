"""Which real programs there are, and which generation of Kubernetes they are of."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from purser.lab.controlplane.commands import Version

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
"""Names the folder with the programs; the convention of controller-runtime's envtest."""

API_SERVER, ETCD = "kube-apiserver", "etcd"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"


@dataclass(frozen=True)
class Programs:
    """A folder with at least etcd and kube-apiserver."""

    folder: Path
    version: Version

    @classmethod
    def find(cls, folder: Path) -> "Programs":
        """Look into a folder. Raises ValueError that says what to do where it has no API server to run."""
        absent = [name for name in (ETCD, API_SERVER) if not _is_program(folder / name)]
        if absent:
            raise ValueError(
                f"{ASSETS_VARIABLE} is set to {folder}, which does not contain {' or '.join(absent)}: add the program, "
                "or unset the variable to use the lab's own API server"
            )
        return cls(folder.absolute(), version_of(folder / API_SERVER))

    def has(self, name: str) -> bool:
        """Whether a program is there."""
        return _is_program(self.folder / name)

    def path(self, name: str) -> str:
        """Where a program is."""
        return str(self.folder / name)


def version_of(program: Path) -> Version:
    """Major and minor version that a program of Kubernetes says it has, e.g. (1, 20). Raises ValueError."""
    try:
        done = subprocess.run([program.absolute(), "--version"], check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"cannot run {program} --version: {error}") from error
    match = re.search(r"v(\d+)\.(\d+)", done.stdout)
    if match is None:
        raise ValueError(f"{program} --version did not print a version: {done.stdout!r}")
    return int(match[1]), int(match[2])


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
