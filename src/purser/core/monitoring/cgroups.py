"""Which pod and container a process belongs to, by its file /proc/<pid>/cgroup. Pure.

kubelet makes a cgroup for every pod below one that it calls ``kubepods``, and the container runtime one for every
container in it. How they are called depends on kubelet's cgroup driver (kubernetes/pkg/kubelet/cm:
cgroup_manager_linux.go, pod_container_manager_linux.go) and on the runtime:

    cgroupfs  /kubepods[/burstable|/besteffort]/pod<uid>/[crio-]<id>
    systemd   /kubepods.slice[/kubepods-burstable.slice]/kubepods[-burstable]-pod<uid>.slice/<runtime>-<id>.scope
    mixed     [...]/kubepods[-burstable]-pod<uid>.slice:cri-containerd:<id>, where kubelet has the systemd driver and
              containerd has not

kubelet's option ``--cgroup-root``, and nodes that are containers themselves, put folders before that. Of static pods
the uid is a hash: the annotation kubernetes.io/config.hash.

Names count from the outside in: what a container makes below its own cgroup, whatever it is called, changes nothing.
A path ends in `DELETED` where the process is a zombie whose cgroup is gone.
"""

import re
from collections.abc import Sequence

import msgspec

MAX_CGROUP_BYTES = 64 * 1024
"""Of a process' file: with cgroup v1 it has a path for each of some fifteen hierarchies, of 4 KiB at most each."""

DELETED = " (deleted)"
"""The kernel's (Documentation/admin-guide/cgroup-v2.rst)."""

MAX_LINES = 64
MAX_PARTS = 128


class CgroupOwner(msgspec.Struct, frozen=True):
    """Whose a process is."""

    pod_uid: str
    """As kubelet knows the pod: of a static one it is not that of its image in the API server."""
    container_id: str = ""
    """Empty: the process is in the pod, and its container is not known."""


_UID = r"([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_PARENT_SLICES = r"(?:[A-Za-z0-9_.]+-)*"
_CLASS = r"(?:burstable|besteffort)"
_SLICE = rf"{_PARENT_SLICES}kubepods(?:-{_CLASS})?-pod{_UID}\.slice"
_ROOT = re.compile(rf"kubepods|{_PARENT_SLICES}kubepods\.slice")
_QOS = re.compile(rf"{_CLASS}|{_PARENT_SLICES}kubepods-{_CLASS}\.slice")
_POD = re.compile(rf"pod{_UID}|{_SLICE}")
_CONTAINER = re.compile(r"(?:[a-z]+-)*([0-9a-f]{64})(?:\.scope)?")
_SYSTEMD_WITH_CGROUPFS = re.compile(rf"{_SLICE}:[a-z-]+:([0-9a-f]{{64}})")
_USERS = re.compile(r"user\.slice|user-.*|user@.*")
"""Below these every user of the host makes cgroups of any name."""


def owner_of(text: str) -> CgroupOwner | None:
    """Whose process has this file; None: no pod's, or hierarchies of cgroup v1 that disagree."""
    found = {owner for line in text.split("\n", MAX_LINES)[:MAX_LINES] if (owner := _owner_in(line)) is not None}
    return found.pop() if len(found) == 1 else None


def cgroup_id_of(container_id: str) -> str:
    """A container's id as its cgroup has it, of that in the pod's status: ``containerd://<id>``."""
    return container_id.rpartition("://")[2]


def _owner_in(line: str) -> CgroupOwner | None:
    """A line is ``<number>:<controllers>:<path>``, and the path may have colons."""
    _, _, path = line.partition(":")[2].partition(":")
    parts = [part for part in path.removesuffix(DELETED).split("/", MAX_PARTS)[:MAX_PARTS] if part]
    if parts[:1] == [".."]:  # from within a cgroup namespace: what both paths begin with is left out
        parts = [part for part in parts if part != ".."]
        if (owner := _find_owner(parts)) is not None:
            return owner
    for place, part in enumerate(parts):
        if _USERS.fullmatch(part):
            return None
        if mixed := _SYSTEMD_WITH_CGROUPFS.fullmatch(part):
            return CgroupOwner(_uid_with_dashes(mixed[1]), mixed[2])
        if _ROOT.fullmatch(part):
            return _find_owner(parts[place + 1 :])
    return None


def _find_owner(parts: Sequence[str]) -> CgroupOwner | None:
    """The pod that this path leads to from ``kubepods``, or from the folder of a class below it."""
    if parts and _QOS.fullmatch(parts[0]):
        parts = parts[1:]
    pod = _POD.fullmatch(parts[0]) if parts else None
    if pod is None:
        return None
    container = _CONTAINER.fullmatch(parts[1]) if len(parts) > 1 else None
    return CgroupOwner(_uid_with_dashes(pod[1] or pod[2]), "" if container is None else container[1])


def _uid_with_dashes(uid: str) -> str:
    """The systemd driver writes dashes, which nest slices, as underscores."""
    return uid.replace("_", "-")
