"""Where the programs of the cluster are found, and which generation of Kubernetes they are.

Order: the folder named by `KUBEBUILDER_ASSETS` (the convention of envtest), then the folder that `build.py` fills,
then, for everything that Debian packages, the PATH.
"""

import os
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from purser.lab.controlplane.programs import ASSETS_VARIABLE, version_of

KUBERNETES_VERSION = "1.20.2"
"""The version in Debian 12's source package `kubernetes`, which is the one that can be built without other sources."""

BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
"""Programs that Debian ships as source only."""

PACKAGED = ("etcd", "containerd", "ctr", "runc")
CNI_PLUGINS = Path("/usr/lib/cni")
BUSYBOX = Path("/bin/busybox")
"""Debian's busybox-static puts it here; the test image is made of this one file."""


class MissingBinariesError(RuntimeError):
    """A program that the cluster needs is not on this machine; the message names it and says how to get it."""


def cache_folder() -> Path:
    """Folder for what is built once per machine."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "purser"


def built_folder() -> Path:
    """Folder that holds the programs of `BUILT` once `build.py` has run."""
    return cache_folder() / f"kube-{KUBERNETES_VERSION}"


@dataclass(frozen=True)
class Binaries:
    """Programs by name; `folder` comes before the PATH."""

    folder: Path

    @classmethod
    def find(cls) -> "Binaries":
        """Find every program; raises MissingBinariesError naming all that are absent."""
        assets = os.environ.get(ASSETS_VARIABLE)
        found = cls(Path(assets) if assets else built_folder())
        absent = [name for name in (*BUILT, *PACKAGED, "kubectl") if found._locate(name) is None]
        absent += [str(path) for path in (CNI_PLUGINS / "bridge", BUSYBOX) if not path.exists()]
        if absent:
            raise MissingBinariesError(
                f"not on this machine: {', '.join(absent)} (looked in {found.folder} and on the PATH); "
                "run as root on Debian 12: python -m tests.cluster.kubernetes.build"
            )
        return found

    def path(self, name: str) -> str:
        """Absolute path of one program; raises MissingBinariesError."""
        located = self._locate(name)
        if located is None:
            raise MissingBinariesError(f"{name} is neither in {self.folder} nor on the PATH")
        return located

    def _locate(self, name: str) -> str | None:
        # A user's kubectl is newer than the one built beside the servers: it is preferred. Everything else that lies in
        # the folder belongs to that generation of Kubernetes and wins.
        search_path = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin:/sbin"
        places = [str(self.folder), search_path]
        if name == "kubectl":
            places.reverse()
        return shutil.which(name, path=os.pathsep.join(places))

    @cached_property
    def version(self) -> tuple[int, int]:
        """Major and minor version of the control plane, e.g. (1, 20)."""
        return version_of(Path(self.path("kube-apiserver")))
