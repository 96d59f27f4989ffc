"""Whether the agent sees the processes that use GPUs, which is what use by pod and the audit of shares are made of."""

from collections.abc import Iterator
from pathlib import Path

from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.host.files import read_head
from purser.agent.host.hostfiles import on_host
from purser.agent.settings import AgentSettings

_OWN_STATUS = Path("/proc/self/status")
_PIDS = "NSpid:"
_MAX_STATUS_BYTES = 65536
_ADVICE = (
    "Run the agent with hostPID: true, as the chart does. Otherwise, the agent cannot determine which pods use GPUs."
)


def check_processes(settings: AgentSettings) -> Iterator[CheckResult]:
    """NVML reports processes by the pids of its caller's namespace.

    The host's /proc has this process by its pid in each namespace from the host's on (proc_pid_status(5)): one pid if
    it is in the host's. Unlike the namespaces' own links this needs no permission to trace the host's first process.
    """
    try:
        text = read_head(on_host(settings, _OWN_STATUS), _MAX_STATUS_BYTES).decode(errors="replace")
    except OSError as error:
        message = f"{error.filename}: {error.strerror or error}"
        yield CheckResult(
            "processes", CheckState.WARNING, message, "Run the check as root, with the host's root file system mounted."
        )
        return
    pids = next((line.split()[1:] for line in text.splitlines() if line.startswith(_PIDS)), [])
    if len(pids) == 1:
        yield CheckResult("processes", CheckState.OK, "in the host's PID namespace")
    else:
        yield CheckResult("processes", CheckState.WARNING, "not in the host's PID namespace", _ADVICE)
