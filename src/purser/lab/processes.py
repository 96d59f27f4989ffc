"""Processes on the GPUs of an emulated node, and whose they are.

Containers of the lab are records, and nothing runs in them: a process is a pid that the driver lists on a GPU, and a
folder ``proc/<pid>`` below the node's root whose file ``cgroup`` says which container it is in, as the kernel would.
"""

import shutil
from collections.abc import Iterator
from enum import StrEnum
from itertools import count
from pathlib import Path

from purser.core.kubelet.pod import QosClass
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.parts import ProcessLoad
from purser.lab.kubelet.runtime import ContainerRecord, Runtime

FIRST_PID = 10_001

_CONTROLLERS = ("memory", "devices", "cpuset", "cpu,cpuacct", "pids", "name=systemd")
"""Of a host with cgroup v1; it has a few more."""
_HOST_CGROUP = "/user.slice/user-0.slice/session-1.scope"
"""Where a process is that is in no container."""


class CgroupVersion(StrEnum):
    """Of the host."""

    V1 = "v1"
    V2 = "v2"


class CgroupDriver(StrEnum):
    """KubeletConfiguration's cgroupDriver: who names cgroups, and how."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


def cgroup_path(container: ContainerRecord, driver: CgroupDriver) -> str:
    """Where kubelet and containerd put a container (kubelet's cm.NewCgroupName, containerd's cri-containerd scopes)."""
    qos = "" if container.qos == QosClass.GUARANTEED else container.qos.lower()
    if driver is CgroupDriver.CGROUPFS:
        return "/".join(("/kubepods", *filter(None, [qos]), f"pod{container.pod_uid}", container.id))
    above = f"/kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-" if qos else "/kubepods.slice/kubepods-"
    return f"{above}pod{container.pod_uid.replace('-', '_')}.slice/cri-containerd-{container.id}.scope"


def cgroup_file(path: str, version: CgroupVersion) -> str:
    """``/proc/<pid>/cgroup``; cgroups(7)."""
    if version is CgroupVersion.V2:
        return f"0::{path}\n"
    numbered = zip(range(len(_CONTROLLERS), 0, -1), _CONTROLLERS, strict=True)
    return "".join(f"{number}:{name}:{path}\n" for number, name in numbered)


class GpuProcesses:
    """Those of one node. ``root``: the node's root folder, as its agent gets it."""

    def __init__(self, driver: SimulatedDriver, runtime: Runtime, root: Path) -> None:
        self._driver = driver
        self._runtime = runtime
        self._proc = root / "proc"

    def container(self, namespace: str, pod: str, container: str | None = None) -> ContainerRecord:
        """A container that runs on this node, the pod's last one unless it is named. Raises LookupError."""
        found = [each for each in self._runtime.all() if (each.namespace, each.pod) == (namespace, pod)]
        if not found:
            raise LookupError(f"pod {namespace}/{pod} is not running on node {self._driver.state.node}")
        named = {each.container: each for each in sorted(found, key=lambda each: each.started_at)}
        if container is None:
            return next(reversed(named.values()))
        if container not in named:
            raise LookupError(f"pod {namespace}/{pod} has no container {container}: must be one of {', '.join(named)}")
        return named[container]

    def start(
        self,
        gpu: int | str,
        load: ProcessLoad,
        *,
        container: ContainerRecord | None = None,
        pid: int | None = None,
        version: CgroupVersion = CgroupVersion.V2,
        driver: CgroupDriver = CgroupDriver.SYSTEMD,
    ) -> int:
        """A process starts on the GPU, in that container or in none, and its pid is returned.

        With the ``pid`` of a process that is there, that one uses this GPU, too, or something else of it.

        Raises:
            LookupError: there is no such GPU.
            ValueError: the GPU has no room for it.
        """
        folder = self._new_folder() if pid is None else self._proc / str(pid)
        # Before the driver lists it: readers of the driver's list look here next.
        if container is not None or not (folder / "cgroup").exists():
            path = _HOST_CGROUP if container is None else cgroup_path(container, driver)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup").write_text(cgroup_file(path, version), encoding="ascii")
        number = int(folder.name)
        try:
            self._driver.add_process(gpu, number, load)
        except (LookupError, ValueError):
            if not self._gpus_of(number):
                shutil.rmtree(folder)
            raise
        return number

    def stop(self, pid: int) -> None:
        """A process ends on all GPUs. Raises LookupError where there is none of that pid."""
        held = self._gpus_of(pid)
        folder = self._proc / str(pid)
        if not held and not folder.exists():
            raise LookupError(f"process {pid} does not use a GPU of node {self._driver.state.node}")
        for place in held:
            self._driver.remove_process(place, pid)
        shutil.rmtree(folder, ignore_errors=True)

    def owner(self, pid: int) -> str:
        """The container that a process is in, as namespace/pod/container; empty: in none that is there."""
        text = self._cgroup(pid)
        records = (each for each in self._runtime.all() if each.id in text)
        return next((f"{each.namespace}/{each.pod}/{each.container}" for each in records), "")

    def end_pod(self, uid: str) -> None:
        """All processes in a pod end."""
        for pid in list(self._pids()):
            if self._is_in(pid, uid):
                self.stop(pid)

    def _gpus_of(self, pid: int) -> list[int]:
        gpus = self._driver.state.gpus
        return [place for place, gpu in enumerate(gpus) if any(each.pid == pid for each in gpu.processes)]

    def _new_folder(self) -> Path:
        """Of a pid that no process had before, as the kernel counts on; several may ask for one at once."""
        last = self._proc / "sys/kernel/ns_last_pid"
        last.parent.mkdir(parents=True, exist_ok=True)
        for pid in count(int(last.read_text()) + 1 if last.exists() else FIRST_PID):
            try:
                (self._proc / str(pid)).mkdir()
            except FileExistsError:
                continue
            last.write_text(f"{pid}\n")
            return self._proc / str(pid)
        raise AssertionError("no PID is free")

    def _pids(self) -> Iterator[int]:
        if self._proc.is_dir():
            yield from (int(each.name) for each in self._proc.iterdir() if each.name.isdecimal())

    def _is_in(self, pid: int, uid: str) -> bool:
        text = self._cgroup(pid)
        return f"pod{uid}" in text or f"pod{uid.replace('-', '_')}" in text

    def _cgroup(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "cgroup").read_text(encoding="ascii")
        except FileNotFoundError:
            return ""
