"""A machine of its own for the process that runs clusters: a network that no other run shares, and an orderly end.

The network namespace holds the control plane, the bridge of the nodes, and what a test starts; addresses and the
bridge's name are therefore the same in every run, and several runs work side by side. What the process starts is in a
cgroup of its own, which `keeper.py` clears when the process ends, killed or not.
"""

import atexit
import contextlib
import ctypes
import os
import secrets
import subprocess
import sys
import threading
from pathlib import Path

from . import cgroups, keeper

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET; Python has os.unshare since 3.12."""

_INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_INSTANCES = 1024
"""Of root on the whole machine. Linux' default, 128, is used up by the kubelets, runtimes and agents of three runs side
by side; a kubelet without one fails pods ("inotify_init: too many open files")."""


class NamespacesError(RuntimeError):
    """This machine lets nobody make namespaces or cgroups, as in a container without privileges."""


_name = ""
_keeper = 0
"""Its process id."""


def why_not() -> str | None:
    """Why a run can have no machine of its own here; None if it can."""
    if os.geteuid() != 0:
        return "a real cluster needs root: kubelet mounts, and containerd makes namespaces and cgroups"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--cgroup", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
    )
    if tried.returncode == 0:
        return None
    said = f"{tried.stderr.strip()} (a container must be privileged)"
    return f"a real cluster needs network, mount and cgroup namespaces, and mounts: {said}"


def enter() -> str:
    """Move this process to its own network and cgroup; returns the name of the run. Later calls change nothing.

    The network is that of the calling thread and of the threads it starts: the first call must be the main thread's.
    Raises NamespacesError.
    """
    global _name
    if _name:
        return _name
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("machine.enter() is to be called by the main thread first")
    if reason := why_not():
        raise NamespacesError(reason)
    name = f"purser-cluster-{secrets.token_hex(4)}-"
    try:
        hierarchy = cgroups.tracking()
        before, mine = cgroups.own(hierarchy), hierarchy.mount / f"{name}run"
        _start_keeper(name, before)
        mine.mkdir()
        (mine / "cgroup.procs").write_text("0")
    except OSError as error:
        raise NamespacesError(f"a real cluster needs cgroups: {error}") from error
    _raise_inotify_limit()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK):
        raise NamespacesError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _name = name
    return name


def outside() -> tuple[str, ...]:
    """What runs the command after it in the network of before: for what has to be fetched."""
    return ("nsenter", f"--target={_keeper}", "--net") if _name else ()


def _raise_inotify_limit() -> None:
    """It stays raised when the run has ended: others may count on it by then."""
    if int(_INOTIFY_INSTANCES.read_text()) < _ENOUGH_INSTANCES:
        with contextlib.suppress(OSError):  # read-only in some containers: most tests pass with fewer
            _INOTIFY_INSTANCES.write_text(str(_ENOUGH_INSTANCES))


def _start_keeper(name: str, before: Path) -> None:
    global _keeper
    running = subprocess.Popen(
        [sys.executable, "-S", "-E", keeper.__file__, name], stdin=subprocess.PIPE, start_new_session=True
    )
    _keeper = running.pid

    def end() -> None:
        # Out of what it kills.
        (before / "cgroup.procs").write_text("0")
        running.communicate()

    atexit.register(end)
