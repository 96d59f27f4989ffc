"""kubelet's sockets and configuration, other device plugins beside it, and what the agent itself needs of the host."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from purser.agent.allocation.book import AgentCheckpointError, read_checkpoint
from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.kubelet.facts.reading import read, sources_of
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.settings import AgentSettings
from purser.core.kubelet.report import aligns
from purser.core.wording import counted

_ANSWER_S = 5.0
_NEWEST_VERSION = "1.37.0"
"""A kubelet whose version is not known is taken for this one: what is read of its configuration has not changed."""

_RUN_AS_ROOT_ADVICE = (
    "Run as root, which owns kubelet's files. If the user is already root, check for a read-only mount, for "
    "SELinux or AppArmor denials, and whether the container drops the capability CAP_DAC_OVERRIDE."
)
_PERMISSION_DENIED = os.strerror(errno.EACCES)
_START_KUBELET = "Start kubelet, or set the paths to its sockets with --device-plugin-dir and --pod-resources-socket."


async def check_kubelet(settings: AgentSettings) -> tuple[CheckResult, ...]:
    """kubelet registers plugins on one socket and lists on another which container holds what: both are needed."""
    return (
        _permissions(settings),
        _registration(settings),
        await _pod_resources(settings),
        _configuration(settings),
        _other_plugins(settings),
        _checkpoint(settings),
    )


def _permissions(settings: AgentSettings) -> CheckResult:
    folders = (_nearest_existing(settings.device_plugin_dir), _nearest_existing(settings.state_dir))
    read_only = [path for path in folders if not _is_writable(path)]
    if read_only:
        paths = ", ".join(map(str, read_only))
        return CheckResult(
            "permissions", CheckState.FAILED, f"cannot write to {paths} as user {os.geteuid()}", _RUN_AS_ROOT_ADVICE
        )
    return CheckResult(
        "permissions", CheckState.OK, f"user {os.geteuid()} can write to {' and '.join(map(str, folders))}"
    )


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK | os.X_OK)


def _nearest_existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there, as far as may be looked."""
    return next((each for each in (path, *path.parents) if os.access(each, os.F_OK)), path)


def _registration(settings: AgentSettings) -> CheckResult:
    problem = _refused(settings.kubelet_socket)
    if problem:
        message = f"{settings.kubelet_socket}: {problem}"
        return CheckResult("kubelet", CheckState.FAILED, message, _advice_unless_denied(problem, _START_KUBELET))
    return CheckResult("kubelet", CheckState.OK, f"accepts device plugins at {settings.kubelet_socket}")


async def _pod_resources(settings: AgentSettings) -> CheckResult:
    what = "PodResources"
    path = settings.pod_resources_socket
    problem = _refused(path)
    if problem:
        return CheckResult(
            what, CheckState.FAILED, f"{path}: {problem}", _advice_unless_denied(problem, _START_KUBELET)
        )
    try:
        async with asyncio.timeout(_ANSWER_S), KubeletBooks(path) as kubelet:
            pods = await kubelet.list()
    except (KubeletError, TimeoutError) as error:
        message = str(error) or f"{path}: kubelet did not answer within {_ANSWER_S:g} s"
        return CheckResult(
            what, CheckState.FAILED, message, "Check kubelet's log. Without the PodResources API, no pod gets a GPU."
        )
    return CheckResult(what, CheckState.OK, f"kubelet lists {counted(len(pods), 'pod')}")


def _configuration(settings: AgentSettings) -> CheckResult:
    sources = sources_of(settings)
    found = read(sources, _NEWEST_VERSION)
    if found.problems:
        message = "; ".join(found.problems.values())
        advice = (
            "Correct the file or, if its path is wrong, set --kubelet-dir or --kubelet-config. Until then, the "
            "scheduler cannot predict which pods kubelet rejects because of NUMA alignment."
        )
        return CheckResult("kubelet's files", CheckState.WARNING, message, _advice_unless_denied(message, advice))
    if found.config is None or not aligns(found.config):
        return CheckResult(
            "kubelet's files", CheckState.OK, f"{sources.config}: kubelet does not align pods to NUMA nodes"
        )
    message = f"topology manager {found.config.topology_policy.value}, CPU manager {found.config.cpu_policy.value}"
    return CheckResult(
        "kubelet's files", CheckState.OK, f"{message}, memory manager {found.config.memory_policy.value}"
    )


def _other_plugins(settings: AgentSettings) -> CheckResult:
    """kubelet takes the plugin that registered last: two of one resource replace one another without end."""
    what = "other device plugins"
    kubelets = settings.kubelet_socket.name
    names = [path.name for path in _sockets(settings.device_plugin_dir) if path.name != kubelets and not _refused(path)]
    gpu = sorted(name for name in names if "gpu" in name or "nvidia" in name)
    gpu = [name for name in gpu if not name.startswith("purser-")]
    if gpu:
        whose = "the plugin that serves this socket" if len(gpu) == 1 else "the plugins that serve these sockets"
        message = f"{', '.join(gpu)}: {whose} may also register nvidia.com/gpu"
        advice = (
            "Remove the other device plugin from this node, or exclude the node from Purser's agent "
            "(agent.nodeSelector)."
        )
        return CheckResult(what, CheckState.WARNING, message, advice)
    return CheckResult(what, CheckState.OK, "none for GPUs")


def _sockets(folder: Path) -> Iterator[Path]:
    try:
        yield from (path for path in sorted(folder.iterdir()) if path.is_socket())
    except OSError:
        return


def _checkpoint(settings: AgentSettings) -> CheckResult:
    try:
        pods = read_checkpoint(settings.checkpoint, settings.node_name).pods
    except AgentCheckpointError as error:
        advice = "Nothing to do. The agent rebuilds the checkpoint from kubelet and the API server."
        return CheckResult(
            "agent's checkpoint", CheckState.WARNING, str(error), _advice_unless_denied(str(error), advice)
        )
    if not settings.checkpoint.exists():
        return CheckResult(
            "agent's checkpoint",
            CheckState.ABSENT,
            f"{settings.checkpoint} does not exist; the agent writes it when it gives a pod a GPU",
        )
    verb = "holds" if len(pods) == 1 else "hold"
    return CheckResult("agent's checkpoint", CheckState.OK, f"{counted(len(pods), 'pod')} {verb} GPUs")


def _advice_unless_denied(problem: str, advice: str) -> str:
    """The advice, but where permissions are what is wrong."""
    return _RUN_AS_ROOT_ADVICE if _PERMISSION_DENIED in problem else advice


def _refused(path: Path) -> str:
    """Why a socket does not answer; empty where it does."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_ANSWER_S)
        try:
            client.connect(str(path))
        except OSError as error:
            return error.strerror or str(error)
    return ""
