"""The container toolkit: makes a node's container runtime hand GPUs to containers."""

import posixpath

import msgspec

from purser.operator.model import Rendered, RenderInputs, RuntimeKind
from purser.operator.operands.mounts import CDI, VALIDATIONS, driver_root, host_root, under_host
from purser.operator.operands.parts import (
    MountedVolume,
    PodTemplate,
    Raw,
    container,
    host_network,
    host_path,
    per_runtime,
)
from purser.operator.operands.paths import RuntimePaths, path_variables, runtime_paths
from purser.operator.operands.runtimes import ACCEPT_MOUNTS, ACCEPT_VARIABLE, device_list, uses_cdi
from purser.operator.operands.waiting import driver_validation, told_of_driver
from purser.operator.order import Operand
from purser.operator.policy.images import DEFAULTS, reference
from purser.operator.policy.sections import ToolkitSpec
from purser.operator.policy.spec import ClusterPolicySpec

ACCOUNT = "purser-container-toolkit"
_PAUSE_S = 5
"""containerd from 1.6.9 on ends a container that restarts it within moments of its own start."""
_FOLDERS = {"config": "/runtime/config", "drop_in": "/runtime/drop-in", "socket": "/runtime/socket"}
"""Where the toolkit's container sees the folders of the runtime's files."""


def render(wanted: RenderInputs) -> list[Rendered]:
    """A DaemonSet per kind of runtime."""
    spec = wanted.policy.spec
    if Operand.TOOLKIT not in spec.enabled:
        return []
    return per_runtime(wanted, lambda kind: _pod(spec, kind), Operand.TOOLKIT)


def _pod(spec: ClusterPolicySpec, kind: RuntimeKind) -> PodTemplate:
    section = spec.toolkit
    paths = runtime_paths(kind, {each.name: each.value for each in section.env})
    own = [
        host_path("toolkit-root", "/run/nvidia/toolkit", type="DirectoryOrCreate"),
        host_path("toolkit-install-dir", section.install_dir, type="DirectoryOrCreate"),
        host_root(spec),
        driver_root(spec),
        VALIDATIONS,
        CDI,
    ]
    main = container(
        "nvidia-container-toolkit-ctr",
        reference(DEFAULTS["container-toolkit"], section),
        _without_paths(section, kind),
        command=told_of_driver("nvidia-toolkit", pause_s=_PAUSE_S),
        env={**_variables(spec, kind), **_path_values(paths, kind)},
        mounts=[*own, *_path_mounts(paths, kind)],
        privileged=True,
    )
    more = {"hostPID": True, **host_network(section)}
    labels = {"app": "nvidia-container-toolkit-daemonset"}
    return PodTemplate(account=ACCOUNT, init=[driver_validation(spec)], containers=[main], more=more, labels=labels)


def _variables(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
    return {
        "ROOT": spec.toolkit.install_dir,
        "RUNTIME": kind.runtime,
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": "management.nvidia.com/gpu",
        "TOOLKIT_PID_FILE": "/run/nvidia/toolkit/toolkit.pid",
        **({"CONTAINERD_RUNTIME_CLASS": spec.operator.runtime_class} if kind.runtime == "containerd" else {}),
        **({"CRIO_CONFIG_MODE": "config"} if kind.runtime == "crio" else {}),
        **_handing_over(spec, kind),
        **_accepting(spec, kind),
    }


def _accepting(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
    """Devices are taken from where the device plugin names them, and from nowhere that any pod could write to."""
    named = device_list(spec, kind)
    return {
        ACCEPT_VARIABLE: "true" if "envvar" in named else "false",
        ACCEPT_MOUNTS: "true" if "volume-mounts" in named else "false",
    }


def _handing_over(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
    """With CDI the runtime itself adds devices; otherwise NVIDIA's runtime does, for all containers."""
    if not uses_cdi(spec, kind):
        return {"NVIDIA_RUNTIME_SET_AS_DEFAULT": "true"}
    return {
        "CDI_ENABLED": "true",
        "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
        "NVIDIA_CONTAINER_RUNTIME_MODE": "cdi",
    }


def _path_values(paths: RuntimePaths, kind: RuntimeKind) -> dict[str, str | Raw]:
    """The paths as the toolkit's container sees them."""
    found: dict[str, str | Raw] = {}
    for field, names in path_variables(kind).items():
        if path := getattr(paths, field):
            found.update(dict.fromkeys(names, posixpath.join(_FOLDERS[field], posixpath.basename(path))))
    if paths.drop_in:
        found["RUNTIME_DROP_IN_CONFIG_HOST_PATH"] = paths.drop_in
    if paths.source:
        found["RUNTIME_CONFIG_SOURCE"] = ",".join(_seen_source(each) for each in paths.source.split(","))
    return found


def _seen_source(source: str) -> str:
    kind, equals, path = source.partition("=")
    return f"{kind}={under_host(path)}" if equals and kind == "file" else source


def _path_mounts(paths: RuntimePaths, kind: RuntimeKind) -> list[MountedVolume]:
    """The folders of these files: a mounted file would stay the old one when a new one takes its name."""
    return [
        host_path(
            f"{kind.runtime}-{field.replace('_', '-')}",
            posixpath.dirname(path),
            _FOLDERS[field],
            type="" if field == "socket" else "DirectoryOrCreate",
        )
        for field in _FOLDERS
        if (path := getattr(paths, field))
    ]


def _without_paths(section: ToolkitSpec, kind: RuntimeKind) -> ToolkitSpec:
    """The section without variables that name paths on the host: those are translated, or another runtime's."""
    names = {"RUNTIME_CONFIG_SOURCE", "RUNTIME_CONFIG", "RUNTIME_DROP_IN_CONFIG", "RUNTIME_SOCKET"}
    names |= {f"{prefix}_{field}" for prefix in ("CONTAINERD", "CRIO", "DOCKER") for field in ("CONFIG", "SOCKET")}
    kept = tuple(each for each in section.env if each.name not in names)
    return msgspec.structs.replace(section, env=kept)
