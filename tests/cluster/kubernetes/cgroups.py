"""The cgroup hierarchies of this machine, of version 1 or 2, and the cgroups that runs of the harness make in them.

Only the standard library: `keeper.py` runs by itself.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
"""kubelet asks for the first four, runc for the others."""
V2 = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")
TRACKING = "pids"
"""The hierarchy of version 1 by which processes are found again."""


@dataclass(frozen=True)
class Hierarchy:
    """One that is mounted; `options` of version 1 are its controllers, `above` is what of it lies outside the mount."""

    mount: Path
    options: tuple[str, ...]
    above: str = "/"

    @property
    def unified(self) -> bool:
        """Whether it is of version 2."""
        return not self.options


def hierarchies() -> list[Hierarchy]:
    """Those that a cluster needs. Version 1's are mounted where the machine has them not; raises OSError."""
    if (ROOT / "cgroup.controllers").exists():
        return [Hierarchy(ROOT, ())]
    found = _mounted()
    present = {each for hierarchy in found for each in hierarchy.options}
    if missing := [name for name in V1 if name not in present]:
        if not os.path.ismount(ROOT):
            _mount("tmpfs", "mode=755", ROOT)
        for name in missing:
            (ROOT / name).mkdir(exist_ok=True)
            _mount("cgroup", name, ROOT / name)
        found = _mounted()
    return found


def _mounted() -> list[Hierarchy]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        kind, _, options = words[words.index("-") + 1 :]
        if kind == "cgroup" and (controllers := tuple(each for each in options.split(",") if each in V1)):
            found.append(Hierarchy(Path(words[4]), controllers, words[3]))
    return found


def _mount(kind: str, options: str, target: Path) -> None:
    done = subprocess.run(["mount", "-t", kind, "-o", options, "cgroup", str(target)], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"mounting {target}: {done.stderr.strip()}")


def tracking() -> Hierarchy:
    """The hierarchy by which processes are found again."""
    found = hierarchies()
    return next(each for each in found if each.unified or TRACKING in each.options)


def create(name: str) -> list[Path]:
    """Make a cgroup of this name in every hierarchy, with everything that a node hands on to its pods."""
    made = []
    for hierarchy in hierarchies():
        path = hierarchy.mount / name
        if hierarchy.unified:
            allow_controllers(hierarchy.mount)
        path.mkdir()
        if "cpuset" in hierarchy.options:
            # Empty in a new one, and nothing can be in it until they are set.
            for file in ("cpuset.cpus", "cpuset.mems"):
                (path / file).write_text((hierarchy.mount / file).read_text())
        made.append(path)
    return made


def allow_controllers(path: Path) -> None:
    """Hand the controllers of version 2 on to the cgroups below; raises OSError where processes are in this one."""
    has = (path / "cgroup.controllers").read_text().split()
    (path / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in V2 if each in has))


def own(hierarchy: Hierarchy) -> Path:
    """The cgroup that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if set(controllers.split(",")) & set(hierarchy.options) or (hierarchy.unified and not controllers):
            with contextlib.suppress(ValueError):
                return hierarchy.mount / Path(path).relative_to(hierarchy.above)
    return hierarchy.mount


def processes(paths: Iterable[Path]) -> list[int]:
    """Those in cgroups and below them."""
    found: list[int] = []
    for path in _below(paths):
        with contextlib.suppress(OSError):  # it went in between
            found += map(int, (path / "cgroup.procs").read_text().split())
    return found


def remove(paths: Iterable[Path], patience_seconds: float = 20) -> None:
    """Kill what is in cgroups and below them, until nothing is, and remove them. Raises OSError if that takes long."""
    paths = list(paths)
    deadline = time.monotonic() + patience_seconds
    while True:
        for pid in processes(paths):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            for path in _below(paths):
                path.rmdir()
            return
        except OSError:
            # Busy until the kernel has taken the last process out.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _below(paths: Iterable[Path]) -> Iterator[Path]:
    """Each and everything below, innermost first."""
    for path in paths:
        for folder, _, _ in os.walk(path, topdown=False):
            yield Path(folder)
