"""Where things are on a node, by its container runtime and Kubernetes distribution.

One wrong path here is what users of other operators suffer from most: a runtime that nobody configured, or a cluster
that does not come back. The paths are what each distribution documents; the toolkit's own variables, set in
``spec.toolkit.env``, still win.
"""

from collections.abc import Mapping

import msgspec

from purser.operator.model import RuntimeKind


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
    """Over which it is told to read it anew; empty: it is restarted."""


KUBELET = "/var/lib/kubelet"
_RANCHER = "/var/lib/rancher/{}/agent/etc/containerd"
_SNAP = "/var/snap/microk8s"


def _rancher(name: str, drop_ins: str) -> RuntimePaths:
    """k3s and RKE2 write config.toml anew at each start: only what lies in their folder of imports stays.

    There is one folder for each version of containerd's configuration, since k3s-io/k3s#13680 (releases of spring
    2026). Older ones import nothing, and find NVIDIA's runtimes by themselves when they start, below
    /usr/local/nvidia/toolkit; which of them is the default one is said in their own configuration
    (``default-runtime``). Their template is left alone: it takes the place of the whole configuration, and what the
    toolkit would write there keeps containerd from coming back after the next start (NVIDIA/gpu-operator#992).
    """
    folder = _RANCHER.format(name)
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
        config=f"{_SNAP}/current/args/containerd-template.toml",
        source=f"file={_SNAP}/current/args/containerd.toml",
        drop_in="/etc/containerd/conf.d/99-nvidia.toml",
        socket=f"{_SNAP}/common/run/containerd.sock",
    ),
    ("crio", ""): RuntimePaths(config="/etc/crio/config.toml", drop_in="/etc/crio/crio.conf.d/99-nvidia.conf"),
    ("docker", ""): RuntimePaths(config="/etc/docker/daemon.json", socket="/var/run/docker.sock"),
}
"""By runtime and distribution. A pair that is not here is as the runtime alone: k3s on Docker has Docker's paths."""

CONFIG_V2 = {name: _rancher(name, "config.toml.d") for name in ("k3s", "rke2")}
"""By distribution: with a containerd older than 2, which reads version 2 of its configuration."""

KUBELET_ROOTS = {"k0s": "/var/lib/k0s/kubelet", "microk8s": f"{_SNAP}/common/var/lib/kubelet"}
"""Of distributions whose kubelet has a root of its own."""

_PREFIXES = {"containerd": "CONTAINERD", "crio": "CRIO", "docker": "DOCKER"}


def runtime_paths(kind: RuntimeKind, env: Mapping[str, str]) -> RuntimePaths:
    """The paths on nodes of this kind. ``env`` are the toolkit's variables that users set, with paths on the host."""
    found = _found(kind)
    prefix = _PREFIXES[kind.runtime]
    return RuntimePaths(
        config=env.get(f"{prefix}_CONFIG") or env.get("RUNTIME_CONFIG") or found.config,
        drop_in=env.get("RUNTIME_DROP_IN_CONFIG") or found.drop_in,
        source=env.get("RUNTIME_CONFIG_SOURCE") or found.source,
        socket=env.get(f"{prefix}_SOCKET") or env.get("RUNTIME_SOCKET") or found.socket,
    )


def _found(kind: RuntimeKind) -> RuntimePaths:
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
