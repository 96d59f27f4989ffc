"""Whether the agent sees the processes that use GPUs, which is what use by pod and the audit of shares are made of."""

from collections.abc import Iterator
from pathlib import Path

from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.settings import AgentSettings

_OWN = Path("/proc/self/ns/pid")
_ADVICE = "Run it with hostPID: true, as the chart does: else the use of GPUs by pods is not known."


def check_processes(settings: AgentSettings) -> Iterator[CheckResult]:
    """NVML tells processes by the pids of its caller's namespace."""
    theirs = settings.host_root / "proc/1/ns/pid"
    try:
        is_same = _OWN.readlink() == theirs.readlink()
    except OSError as error:
        said = f"{error.filename}: {error.strerror or error}"
        yield CheckResult("processes", CheckState.WARNING, said, "Run it as root, with the host's root mounted.")
        return
    if is_same:
        yield CheckResult("processes", CheckState.OK, "in the host's PID namespace")
    else:
        yield CheckResult("processes", CheckState.WARNING, "not in the host's PID namespace", _ADVICE)
