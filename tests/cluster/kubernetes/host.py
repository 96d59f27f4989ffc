"""What a cluster does to the machine outside its own folder: the lock, cgroup mounts, and clearing up leftovers.

kubelet 1.20 has its device plugin folder compiled in below /var/lib/kubelet, so there can be one cluster per machine.
A lock file says whose turn it is and where the last run kept its data: a run that was killed is cleared up by the next.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .network import delete_bridge

LOCK_FILE = Path("/run/lock/purser-cluster.lock")
KUBELET_FOLDER = Path("/var/lib/kubelet")
LOG_FOLDERS = (Path("/var/log/pods"), Path("/var/log/containers"))
"""Compiled into kubelet as well."""

CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUPS_V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
"""kubelet asks for the first four, runc for the others."""

_MARKER = KUBELET_FOLDER / ".purser-cluster"
_OURS = (
    "etcd",
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "kube-proxy",
    "containerd",
    "containerd-shim",
    "kubelet",
)
_NETWORKS = Path("/run/netns")


@dataclass(frozen=True)
class Run:
    """What the lock file holds of the run whose turn it is: enough to clear up after it."""

    pid: int
    folder: str
    foreign_networks: tuple[str, ...]
    """Network namespaces of other container runtimes, which were there before."""


class ForeignKubeletError(RuntimeError):
    """The machine is somebody's node: its kubelet's folder was not made by this harness."""


@contextlib.contextmanager
def machine_lock(folder: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the machine for one cluster whose data lies in `folder`; clears up leftovers when it enters and leaves.

    Raises TimeoutError when another run holds it for longer than `wait_seconds`, ForeignKubeletError when the machine
    has a kubelet of its own.
    """
    LOCK_FILE.parent.mkdir(parents=True, exist_ok=True)
    with LOCK_FILE.open("a+") as lock:
        _acquire(lock.fileno(), wait_seconds)
        previous = _read_run()
        if previous is not None:
            clear_leftovers(previous)
        _claim_kubelet_folder()
        run = Run(os.getpid(), str(folder), tuple(path.name for path in _NETWORKS.glob("cni-*")))
        LOCK_FILE.write_text(json.dumps(asdict(run)))
        try:
            yield
        finally:
            clear_leftovers(run)
            LOCK_FILE.write_text("")


def ensure_cgroups() -> None:
    """Mount the cgroup v1 hierarchies that are missing; a machine with cgroup v2 only is left as it is."""
    if (CGROUP_ROOT / "cgroup.controllers").exists():
        return
    mounted = _mount_points()
    if str(CGROUP_ROOT) not in mounted:
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "cgroup", str(CGROUP_ROOT))
    for name in CGROUPS_V1:
        target = CGROUP_ROOT / name
        if str(target.resolve()) not in mounted:
            target.mkdir(exist_ok=True)
            _run("mount", "-t", "cgroup", "-o", name, "cgroup", str(target))


def ensure_shared_mounts() -> None:
    """Let mounts be seen across mount namespaces, as systemd does: `mountPropagation` of pods needs it."""
    [root] = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    if not any(field.startswith("shared:") for field in root[6 : root.index("-")]):
        _run("mount", "--make-rshared", "/")


def clear_leftovers(run: Run) -> None:
    """End what is left of a run and remove what it wrote outside its folder, and the folder itself."""
    folder = Path(run.folder)
    _kill(_processes_of(folder))
    _kill(_pod_processes())
    _unmount_below(folder, KUBELET_FOLDER / "pods", KUBELET_FOLDER / "plugins")
    _remove_pod_cgroups()
    _remove_networks(run.foreign_networks)
    delete_bridge()
    if _MARKER.exists():
        _empty(KUBELET_FOLDER)
        for each in LOG_FOLDERS:
            shutil.rmtree(each, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _acquire(lock: int, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"another cluster runs on this machine: {LOCK_FILE.read_text()}; there can be one at a time"
                ) from None
        if not told:
            print(f"waiting for another cluster on this machine: {LOCK_FILE.read_text()}", file=sys.stderr, flush=True)
            told = True
        time.sleep(0.5)


def _read_run() -> Run | None:
    text = LOCK_FILE.read_text()
    if not text:
        return None
    fields = json.loads(text)
    return Run(fields["pid"], fields["folder"], tuple(fields["foreign_networks"]))


def _claim_kubelet_folder() -> None:
    if KUBELET_FOLDER.exists() and any(KUBELET_FOLDER.iterdir()) and not _MARKER.exists():
        raise ForeignKubeletError(
            f"{KUBELET_FOLDER} holds data of another kubelet; run the cluster tests on a machine that is not a node"
        )
    KUBELET_FOLDER.mkdir(parents=True, exist_ok=True)
    _MARKER.touch()


def _processes_of(folder: Path) -> list[int]:
    """Processes of the harness that were started with files in `folder`; their folder's name is unlike any other's."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name = (entry / "comm").read_text().strip()
            if name in _OURS and str(folder) in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def _pod_processes() -> list[int]:
    found: list[int] = []
    for path in _pod_cgroups():
        with contextlib.suppress(OSError):  # it went in between
            found += map(int, (path / "cgroup.procs").read_text().split())
    return found


def _pod_cgroups() -> list[Path]:
    """Every cgroup kubelet made for pods, innermost first."""
    roots = [*CGROUP_ROOT.glob("kubepods"), *CGROUP_ROOT.glob("*/kubepods")]
    paths = [path for root in roots for path in (root, *root.rglob("*")) if path.is_dir()]
    return sorted(set(paths), key=lambda path: len(path.parts), reverse=True)


def _remove_pod_cgroups() -> None:
    for path in _pod_cgroups():
        _retry(path.rmdir)


def _remove_networks(foreign: Iterable[str]) -> None:
    """Network namespaces of pods; their ends of the bridge go with them."""
    for path in _NETWORKS.glob("cni-*"):
        if path.name not in foreign:
            subprocess.run(["umount", str(path)], capture_output=True)  # fails where only the file is left
            path.unlink()


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _retry(action: Callable[[], None], attempts: int = 20) -> None:
    """A cgroup is busy until the kernel has reaped its last process, which takes a moment after the kill."""
    for _ in range(attempts):
        try:
            action()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
    action()


def _unmount_below(*folders: Path) -> None:
    for target in reversed(_mount_points()):
        if any(target.startswith(f"{folder}/") for folder in folders):
            _run("umount", "--lazy", target)


def _mount_points() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines]


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
