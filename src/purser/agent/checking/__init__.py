"""What a node has for its GPUs to be handed out, what is missing, and what to do: `purser agent check`.

Each module looks at one thing and changes nothing: `config`, `driver`, `runtime`, `kubelet`, `limits`, what holds
shares to theirs, `processes`, whether those on GPUs are seen, and `sriov`, pools of network devices. `results` is what
they say.

Not here: what is watched while the agent runs (`purser.agent.health`, and its /readyz).
"""

from collections.abc import Callable, Iterator

from purser.agent.checking.config import check_config
from purser.agent.checking.driver import check_driver
from purser.agent.checking.kubelet import check_kubelet
from purser.agent.checking.limits import check_hami_core, check_mps
from purser.agent.checking.processes import check_processes
from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.checking.runtime import check_runtime
from purser.agent.checking.sriov import check_sriov
from purser.agent.nvml.driver import Driver
from purser.agent.settings import AgentSettings

__all__ = ["CheckResult", "CheckState", "check_node"]


async def check_node(settings: AgentSettings, find_driver: Callable[[], Driver]) -> tuple[CheckResult, ...]:
    """Everything that was looked at on this node, in the order in which a GPU comes to a container. Never raises.

    ``find_driver`` opens the driver, or a `NullDriver`, and may block for good.
    """
    return (
        *_check_host_root(settings),
        *_with_permission_failures("device plugin's file", check_config(settings)),
        *await check_driver(settings, find_driver),
        *_with_permission_failures("container toolkit", check_runtime(settings)),
        *await check_kubelet(settings),
        *_with_permission_failures("HAMi-core", check_hami_core(settings)),
        *_with_permission_failures("MPS", check_mps(settings)),
        *_with_permission_failures("processes", check_processes(settings)),
        *_with_permission_failures("SR-IOV pools", check_sriov(settings)),
    )


def _check_host_root(settings: AgentSettings) -> Iterator[CheckResult]:
    """Said first: without it all else seems to be missing."""
    if not settings.host_root.is_dir():
        advice = "Mount the host's root file system there, or set its location with --host-root."
        yield CheckResult("host's root", CheckState.FAILED, f"folder {settings.host_root} does not exist", advice)


def _with_permission_failures(what: str, results: Iterator[CheckResult]) -> Iterator[CheckResult]:
    """Whoever is not root may not look everywhere."""
    try:
        yield from results
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        yield CheckResult(
            what, CheckState.WARNING, message, "Run the check as root: other users cannot read some parts of the node."
        )
