"""Where the programs of the cluster are found, and which generation of Kubernetes they are.

Order: the folder named by `KUBEBUILDER_ASSETS` (the convention of envtest), then the folders that `build.py` fills,
then, for everything that Debian packages, the PATH.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from purser.lab.controlplane.programs import ASSETS_VARIABLE, version_of

from . import releases

BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
"""Programs that Debian ships as source only."""

PROXY = "kube-proxy"
"""Built beside them but for the oldest release; whoever asks for Services needs it, and nobody else."""

PACKAGED = ("etcd", "containerd", "ctr", "runc")
CNI_PLUGINS = Path("/usr/lib/cni")
BUSYBOX = Path("/bin/busybox")
"""Debian's busybox-static puts it here; the test image is made of this one file."""


class MissingBinariesError(RuntimeError):
    """A program that the cluster needs is not on this machine; the message names it and says how to get it."""


@dataclass(frozen=True)
class Binaries:
    """Programs by name; `folders` come before the PATH."""

    folders: tuple[Path, ...]

    @classmethod
    def chosen(cls) -> "Binaries":
        """Those that the environment names, whether they are there or not. Raises ReleaseError."""
        assets = os.environ.get(ASSETS_VARIABLE)
        return cls((Path(assets),) if assets else tuple(releases.folders(releases.wanted()).values()))

    @classmethod
    def find(cls) -> "Binaries":
        """The same, complete; raises MissingBinariesError naming all that are absent."""
        found = cls.chosen()
        absent = [name for name in (*BUILT, *PACKAGED, "kubectl") if not found.has(name)]
        absent += [str(path) for path in (CNI_PLUGINS / "bridge", BUSYBOX) if not path.exists()]
        if absent:
            raise MissingBinariesError(
                f"not on this machine: {', '.join(absent)} (looked in {' and '.join(map(str, found.folders))} and on "
                "the PATH); run as root on Debian 12: python -m tests.cluster.kubernetes.build"
            )
        return found

    def path(self, name: str) -> str:
        """Absolute path of one program; raises MissingBinariesError."""
        located = self._locate(name)
        if located is None:
            raise MissingBinariesError(
                f"{name} is neither in {' nor in '.join(map(str, self.folders))} nor on the PATH"
            )
        return located

    def has(self, name: str) -> bool:
        """Whether a program is there."""
        return self._locate(name) is not None

    def _locate(self, name: str) -> str | None:
        # Any kubectl is newer than that of an old release: the newest that was built, or a user's, is preferred.
        # Everything else that lies in the folders belongs to that generation of Kubernetes and wins.
        search_path = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin:/sbin"
        places = [*map(str, self.folders), search_path]
        if name == "kubectl":
            places = [str(releases.folder("kubernetes", releases.pinned("kubernetes"))), search_path, *places]
        return shutil.which(name, path=os.pathsep.join(places))

    @cached_property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the control plane, e.g. (1, 20)."""
        return version_of(Path(self.path("kube-apiserver")))

    @cached_property
    def containerd_major(self) -> int:
        """Major version of containerd: its configuration file has another form since 2."""
        said = subprocess.run([self.path("containerd"), "--version"], check=True, capture_output=True, text=True).stdout
        return int(re.findall(r"\bv?(\d+)\.\d+\.\d+", said)[0])
