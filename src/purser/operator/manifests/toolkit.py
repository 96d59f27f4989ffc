"""The container toolkit: one DaemonSet per kind of runtime, for every runtime has its files elsewhere.

First where runtimes and kubelets keep their files, by distribution; then which differences between runtimes matter
under a policy: GPU nodes that differ in nothing else share their DaemonSets, so that the update of a runtime moves no
pods."""

import posixpath
from collections.abc import Mapping

import msgspec

from purser.operator.manifests.mounts import (
    CDI,
    VALIDATIONS,
    driver_root,
    driver_validation,
    host_mount_path,
    host_root,
    with_driver_variables,
)
from purser.operator.manifests.parts import (
    MountedVolume,
    PodTemplate,
    Raw,
    container,
    daemon_sets_per_runtime,
    host_network,
    host_path,
)
from purser.operator.model import RenderedManifest, RenderInputs, RuntimeKind
from purser.operator.order import Operand
from purser.operator.policy.fields import DEFAULTS, reference
from purser.operator.policy.sections import ToolkitSpec
from purser.operator.policy.spec import ClusterPolicySpec


class RuntimePaths(msgspec.Struct, frozen=True, kw_only=True):
    """Where a container runtime's configuration and sockets are on the host."""

    config: str
    """Its configuration: what the toolkit reads and may add an import to."""
    drop_in: str = ""
    """What the toolkit writes; empty: this runtime knows no such files, and its configuration is changed."""
    source: str = ""
    """Where the toolkit reads the present configuration, as its RUNTIME_CONFIG_SOURCE says it; empty: it asks the
    runtime's command, and reads the configuration where there is none."""
    socket: str = ""
    """The socket for reloading the configuration; empty: the runtime is restarted."""


KUBELET = "/var/lib/kubelet"
_RANCHER_FOLDER = "/var/lib/rancher/{}/agent/etc/containerd"
_SNAP_ROOT = "/var/snap/microk8s"


def _rancher(name: str, drop_ins: str) -> RuntimePaths:
    """k3s and RKE2 rewrite config.toml at each start: only files in their folder of imports stay.

    There is one folder for each version of containerd's configuration, since k3s-io/k3s#13680 (releases of spring
    2026). Older ones import nothing, and detect NVIDIA's runtimes when they start, below
    /usr/local/nvidia/toolkit; which of them is the default one is said in their own configuration
    (``default-runtime``). Their template is left alone: it takes the place of the whole configuration, and what the
    toolkit would write there keeps containerd from coming back after the next start (NVIDIA/gpu-operator#992).
    """
    folder = _RANCHER_FOLDER.format(name)
    return RuntimePaths(
        config=f"{folder}/config.toml",
        source=f"file={folder}/config.toml",
        drop_in=f"{folder}/{drop_ins}/99-nvidia.toml",
        socket="/run/k3s/containerd/containerd.sock",
    )


RUNTIMES: dict[tuple[str, str], RuntimePaths] = {
    ("containerd", ""): RuntimePaths(
        config="/etc/containerd/config.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket="/run/containerd/containerd.sock",
    ),
    ("containerd", "k3s"): _rancher("k3s", "config-v3.toml.d"),
    ("containerd", "rke2"): _rancher("rke2", "config-v3.toml.d"),
    # k0s makes its configuration of the files in /etc/k0s/containerd.d. A file there that imports another one from
    # elsewhere takes containerd down, so that the drop-in lies there itself.
    ("containerd", "k0s"): RuntimePaths(
        config="/run/k0s/containerd-cri.toml",
        source="file=/run/k0s/containerd-cri.toml",
        drop_in="/etc/k0s/containerd.d/nvidia.toml",
        socket="/run/k0s/containerd.sock",
    ),
    # MicroK8s makes its configuration of a template at each start; the template is what has to change.
    ("containerd", "microk8s"): RuntimePaths(
        config=f"{_SNAP_ROOT}/current/args/containerd-template.toml",
        source=f"file={_SNAP_ROOT}/current/args/containerd.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket=f"{_SNAP_ROOT}/common/run/containerd.sock",
    ),
    ("crio", ""): RuntimePaths(config="/etc/crio/config.toml", drop_in="/etc/crio/crio.conf.d/99-nvidia.conf"),
    ("docker", ""): RuntimePaths(config="/etc/docker/daemon.json", socket="/var/run/docker.sock"),
}
"""By runtime and distribution. A pair that is not here is as the runtime alone: k3s on Docker has Docker's paths."""

CONFIG_V2 = {name: _rancher(name, "config.toml.d") for name in ("k3s", "rke2")}
"""By distribution: with a containerd older than 2, which reads version 2 of its configuration."""

KUBELET_ROOTS = {"k0s": "/var/lib/k0s/kubelet", "microk8s": f"{_SNAP_ROOT}/common/var/lib/kubelet"}
"""Of distributions whose kubelet has a root of its own."""

_PREFIXES = {"containerd": "CONTAINERD", "crio": "CRIO", "docker": "DOCKER"}


def runtime_paths(kind: RuntimeKind, env: Mapping[str, str]) -> RuntimePaths:
    """The paths on nodes of this kind. ``env`` are the toolkit's variables that users set, with paths on the host."""
    found = _find_paths(kind)
    prefix = _PREFIXES[kind.runtime]
    return RuntimePaths(
        config=env.get(f"{prefix}_CONFIG") or env.get("RUNTIME_CONFIG") or found.config,
        drop_in=env.get("RUNTIME_DROP_IN_CONFIG") or found.drop_in,
        source=env.get("RUNTIME_CONFIG_SOURCE") or found.source,
        socket=env.get(f"{prefix}_SOCKET") or env.get("RUNTIME_SOCKET") or found.socket,
    )


def _find_paths(kind: RuntimeKind) -> RuntimePaths:
    if kind.config_v2:
        return CONFIG_V2[kind.distribution]
    return RUNTIMES.get((kind.runtime, kind.distribution)) or RUNTIMES[kind.runtime, ""]


def path_variables(kind: RuntimeKind) -> dict[str, tuple[str, ...]]:
    """What the toolkit calls the paths, each under its general and its runtime's own name."""
    prefix = _PREFIXES[kind.runtime]
    return {
        "config": ("RUNTIME_CONFIG", f"{prefix}_CONFIG"),
        "drop_in": ("RUNTIME_DROP_IN_CONFIG",),
        "socket": ("RUNTIME_SOCKET", f"{prefix}_SOCKET"),
    }


def kubelet_root(kind: RuntimeKind, given: str) -> str:
    """kubelet's root on nodes of this kind; ``given`` is ``spec.hostPaths.kubeletRootDir``."""
    return (given or KUBELET_ROOTS.get(kind.distribution) or KUBELET).rstrip("/")


def plugin_sockets(spec: ClusterPolicySpec, kind: RuntimeKind) -> MountedVolume:
    """kubelet's folder in which device plugins have their sockets."""
    root = kubelet_root(kind, spec.host_paths.kubelet_root_dir)
    return host_path("device-plugins", f"{root}/device-plugins", f"{KUBELET}/device-plugins", type="Directory")


def pod_resources(spec: ClusterPolicySpec, kind: RuntimeKind) -> MountedVolume:
    """kubelet's PodResources API."""
    root = kubelet_root(kind, spec.host_paths.kubelet_root_dir)
    at = f"{KUBELET}/pod-resources"
    return host_path("pod-resources", f"{root}/pod-resources", at, type="DirectoryOrCreate", read_only=True)


# --- differences between runtimes that matter


ACCEPT_VARIABLE = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
"""Whether the toolkit heeds NVIDIA_VISIBLE_DEVICES in containers that are not privileged."""

ACCEPT_MOUNTS = "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"
"""Whether it heeds mounts of /dev/null that are named as devices."""

CDI_STRATEGY = "cdi-annotations,cdi-cri"


def uses_cdi(spec: ClusterPolicySpec, kind: RuntimeKind) -> bool:
    """Whether GPUs are handed over by CDI on nodes of this kind: where policy and runtime can do it."""
    return kind.cdi and _can_use_cdi(spec, kind)


def device_list(spec: ClusterPolicySpec, kind: RuntimeKind) -> frozenset[str]:
    """How containers' devices are named to the toolkit, in words of NVIDIA's device plugin.

    By mounts where it is Purser's agent that names them, and not by CDI: a variable can be replaced by a pod, or by an
    image.
    """
    variables = {each.name: each.value for each in spec.toolkit.env}
    if Operand.DEVICE_PLUGIN not in spec.enabled:
        return frozenset({"envvar"})  # another vendor's plugin, which may do nothing but that
    if spec.device_plugin.is_agent and not uses_cdi(spec, kind):
        return frozenset({"envvar" if variables.get(ACCEPT_MOUNTS, "true").lower() == "false" else "volume-mounts"})
    named = {each.name: each.value for each in spec.device_plugin.env}.get("DEVICE_LIST_STRATEGY")
    return frozenset((named or (CDI_STRATEGY if uses_cdi(spec, kind) else "envvar")).split(","))


def cdi_hook(spec: ClusterPolicySpec) -> str:
    """On the host: what specifications of CDI have runtimes call."""
    return f"{spec.toolkit.install_dir}/toolkit/nvidia-cdi-hook"


def runtime_class_key(kind: RuntimeKind, spec: ClusterPolicySpec) -> RuntimeKind:
    """The kind without what makes no difference to any manifest of this policy."""
    return msgspec.structs.replace(
        kind,
        cdi=kind.cdi or not _can_use_cdi(spec, kind),
        config_v2=kind.config_v2 and Operand.TOOLKIT in spec.enabled,
    )


def _can_use_cdi(spec: ClusterPolicySpec, kind: RuntimeKind) -> bool:
    """Whether a runtime of this kind would use CDI if its version can. NVIDIA's plugin and Purser's agent write the
    specification of their devices themselves. The agent uses it only where the policy's toolkit has switched it on:
    k3s and RKE2 before containerd 2 may not read what the toolkit writes."""
    if not spec.cdi.enabled or kind.runtime == "docker":
        return False
    agent_uses_cdi = spec.device_plugin.is_agent and Operand.TOOLKIT in spec.enabled and not kind.config_v2
    return agent_uses_cdi or spec.device_plugin.flavor == "nvidia"


# --- the DaemonSets


ACCOUNT = "purser-container-toolkit"
_PAUSE_S = 5
"""containerd from 1.6.9 on ends a container that restarts it within moments of its own start."""
_FOLDERS = {"config": "/runtime/config", "drop_in": "/runtime/drop-in", "socket": "/runtime/socket"}
"""Where the toolkit's container sees the folders of the runtime's files."""


def render(wanted: RenderInputs) -> list[RenderedManifest]:
    """A DaemonSet per kind of runtime."""
    spec = wanted.policy.spec
    return daemon_sets_per_runtime(wanted, lambda kind: _pod(spec, kind), Operand.TOOLKIT)


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
        command=with_driver_variables("nvidia-toolkit", pause_s=_PAUSE_S),
        env={**_variables(spec, kind), **_path_values(paths, kind)},
        mounts=[*own, *_path_mounts(paths, kind)],
        privileged=True,
    )
    other_fields = {"hostPID": True, **host_network(section)}
    labels = {"app": "nvidia-container-toolkit-daemonset"}
    return PodTemplate(
        account=ACCOUNT, init=[driver_validation(spec)], containers=[main], other_fields=other_fields, labels=labels
    )


def _variables(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
    return {
        "ROOT": spec.toolkit.install_dir,
        "RUNTIME": kind.runtime,
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": "management.nvidia.com/gpu",
        "TOOLKIT_PID_FILE": "/run/nvidia/toolkit/toolkit.pid",
        **({"CONTAINERD_RUNTIME_CLASS": spec.operator.runtime_class} if kind.runtime == "containerd" else {}),
        **({"CRIO_CONFIG_MODE": "config"} if kind.runtime == "crio" else {}),
        **_runtime_mode_variables(spec, kind),
        **_device_source_variables(spec, kind),
    }


def _device_source_variables(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
    """Devices are taken from where the device plugin names them, and from nowhere that any pod could write to."""
    named = device_list(spec, kind)
    return {
        ACCEPT_VARIABLE: "true" if "envvar" in named else "false",
        ACCEPT_MOUNTS: "true" if "volume-mounts" in named else "false",
    }


def _runtime_mode_variables(spec: ClusterPolicySpec, kind: RuntimeKind) -> dict[str, str | Raw]:
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
        found["RUNTIME_CONFIG_SOURCE"] = ",".join(_source_path(each) for each in paths.source.split(","))
    return found


def _source_path(source: str) -> str:
    kind, equals, path = source.partition("=")
    return f"{kind}={host_mount_path(path)}" if equals and kind == "file" else source


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
