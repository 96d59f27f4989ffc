"""What puts GPUs into containers: the container runtime, NVIDIA's container toolkit, CDI specifications."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from purser.agent.cdi.names import cdi_kind
from purser.agent.checking.config import held_settings
from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.host.files import read_head
from purser.agent.host.hostfiles import on_host
from purser.agent.settings import AgentSettings
from purser.agent.sharing.device_lists import DeviceList
from purser.core.decoding import UnreadableError, convert_value
from purser.core.wording import counted
from purser.yaml_reading import read_yaml

_SOCKETS = {
    "containerd": (
        "/run/containerd/containerd.sock",
        "/run/k3s/containerd/containerd.sock",
        "/run/k0s/containerd.sock",
    ),
    "CRI-O": ("/run/crio/crio.sock",),
    "Docker": ("/run/cri-dockerd.sock", "/run/docker.sock"),
}
_CONFIGURATIONS = (
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.d",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d",
    "/etc/docker/daemon.json",
)
_NVIDIA_RUNTIME = b"nvidia-container-runtime"
_TOOLKIT = ("/usr/bin/nvidia-ctk", "/usr/local/nvidia/toolkit/nvidia-ctk", "/usr/local/bin/nvidia-ctk")
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
_CDI_KIND = cdi_kind("gpu")
_MAX_FILES = 200
_MAX_RUNTIME_FILE_BYTES = 4 << 20
_INSTALL_ADVICE = (
    "Install NVIDIA's container toolkit, or let the operator install it (spec.toolkit in the ClusterPolicy)."
)
_CONFIGURE_ADVICE = "Run nvidia-ctk runtime configure on the node, and restart the container runtime."
_GENERATE_ADVICE = (
    "The agent rewrites its own specification. To regenerate NVIDIA's (nvidia.com/gpu), run nvidia-ctk cdi generate "
    "--output=FILE with the path of the file that is named here."
)


class _CdiDevice(msgspec.Struct, frozen=True):
    name: str


class _CdiSpecification(msgspec.Struct, frozen=True):
    kind: str
    devices: list[_CdiDevice]


def check_runtime(settings: AgentSettings) -> Iterator[CheckResult]:
    """A node needs either a runtime that is configured for NVIDIA's, or one that knows CDI, and the toolkit's hook."""
    names = sorted(name for name, paths in _SOCKETS.items() if any(_is_socket(settings, path) for path in paths))
    yield _check_sockets(names)
    held = held_settings(settings)
    uses_cdi = any(DeviceList(way).is_cdi for way in held.device_lists)
    configured = [path for path in _files(settings, _CONFIGURATIONS) if _names_runtime(settings, path)]
    toolkit = next((path for path in _TOOLKIT if on_host(settings, Path(path)).exists()), None)
    yield _check_toolkit(toolkit, configured, uses_cdi)
    yield from _check_cdi(settings, uses_cdi)
    if uses_cdi and not on_host(settings, Path(held.cdi_hook)).exists():
        message = f"{held.cdi_hook} is missing, so containers do not find the driver's libraries"
        yield CheckResult(
            "CDI hook",
            CheckState.WARNING,
            message,
            f"{_INSTALL_ADVICE} Alternatively, set the hook's location with --nvidia-cdi-hook-path.",
        )


def _check_sockets(names: list[str]) -> CheckResult:
    if not names:
        message = "no containerd, CRI-O or Docker socket was found in a standard location"
        return CheckResult(
            "container runtime", CheckState.WARNING, message, "Check kubelet's option --container-runtime-endpoint."
        )
    return CheckResult("container runtime", CheckState.OK, ", ".join(names))


def _check_toolkit(toolkit: str | None, configured: list[str], uses_cdi: bool) -> CheckResult:
    what = "container toolkit"
    if configured:
        return CheckResult(what, CheckState.OK, f"runtime nvidia is configured in {', '.join(configured)}")
    if toolkit is None:
        message = "not installed, and no container runtime is configured to use nvidia-container-runtime"
        return CheckResult(what, CheckState.WARNING if uses_cdi else CheckState.FAILED, message, _INSTALL_ADVICE)
    message = f"{toolkit} exists, but no container runtime is configured to use nvidia-container-runtime"
    if uses_cdi:
        return CheckResult(what, CheckState.OK, message)
    return CheckResult(what, CheckState.FAILED, message, _CONFIGURE_ADVICE)


def _check_cdi(settings: AgentSettings, uses_cdi: bool) -> Iterator[CheckResult]:
    devices: set[str] = set()
    for path in _files(settings, _CDI_FOLDERS):
        try:
            devices.update(_cdi_devices(settings, path))
        except (OSError, UnreadableError) as error:
            yield CheckResult(
                "CDI", CheckState.WARNING, f"{path}: {error}", f"Remove or correct the file. {_GENERATE_ADVICE}"
            )
    if devices:
        yield CheckResult(
            "CDI", CheckState.OK, f"{counted(len(devices), 'device')} of {_CDI_KIND}: {', '.join(sorted(devices)[:10])}"
        )
    elif uses_cdi:
        yield CheckResult("CDI", CheckState.ABSENT, f"no specification for {_CDI_KIND} yet; the agent will write it")
    else:
        yield CheckResult(
            "CDI",
            CheckState.ABSENT,
            f"no specification for {_CDI_KIND}; the value of --device-list-strategy does not require one",
        )


def _cdi_devices(settings: AgentSettings, path: str) -> Iterator[str]:
    content = read_head(on_host(settings, Path(path)), _MAX_RUNTIME_FILE_BYTES + 1)
    specification = convert_value(read_yaml(content, "it", max_bytes=_MAX_RUNTIME_FILE_BYTES), _CdiSpecification, "it")
    if specification.kind == _CDI_KIND:
        yield from (each.name for each in specification.devices)


def _names_runtime(settings: AgentSettings, path: str) -> bool:
    try:
        return _NVIDIA_RUNTIME in read_head(on_host(settings, Path(path)), _MAX_RUNTIME_FILE_BYTES)
    except OSError:
        return False


def _files(settings: AgentSettings, places: tuple[str, ...]) -> list[str]:
    """Files, as the host calls them: of the given paths, or in the given folders."""
    found: list[str] = []
    for place in places:
        path = on_host(settings, Path(place))
        if path.is_file():
            found.append(place)
        elif path.is_dir():
            found += (f"{place}/{each.name}" for each in sorted(path.iterdir()) if each.is_file())
    return found[:_MAX_FILES]


def _is_socket(settings: AgentSettings, path: str) -> bool:
    try:
        return on_host(settings, Path(path)).is_socket()
    except OSError:
        return False
