"""Which pods have processes on this node, by their cgroups: where these run on, a pod has not ended, whatever the API
server and kubelet's list say.
"""

from collections.abc import Collection
from pathlib import Path

from purser.agent.host.files import read_head
from purser.agent.host.threads import run_in_thread
from purser.core.monitoring.cgroups import MAX_CGROUP_BYTES, owner_of

PROC = Path("/proc")
"""The agent is in the host's pid namespace (``hostPID``)."""

_MAX_STAT_BYTES = 4096
_ENDED_STATES = (b"Z", b"X")
"""States of proc_pid_stat(5): a zombie uses no GPU."""


async def find_pods_with_processes(uids: Collection[str]) -> frozenset[str]:
    """See `pods_with_processes`."""
    return await run_in_thread(lambda: pods_with_processes(PROC, uids), "purser-processes")


def pods_with_processes(proc: Path, uids: Collection[str]) -> frozenset[str]:
    """Those of some pods that have a process. ``proc``: the host's /proc. Blocks: it reads a file of every process."""
    found: set[str] = set()
    for process in proc.glob("[0-9]*"):
        try:
            owner = owner_of(read_head(process / "cgroup", MAX_CGROUP_BYTES).decode("utf-8", "replace"))
            if owner is not None and owner.pod_uid in uids and owner.pod_uid not in found and not _has_ended(process):
                found.add(owner.pod_uid)
        except OSError:  # it has ended meanwhile
            continue
    return frozenset(found)


def _has_ended(process: Path) -> bool:
    """The state comes after the name, which may have any characters in its parentheses."""
    return read_head(process / "stat", _MAX_STAT_BYTES).rpartition(b") ")[2].startswith(_ENDED_STATES)
