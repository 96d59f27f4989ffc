"""Where a runtime's and kubelet's files are: as each distribution's documentation says, and nothing of another's."""

from typing import Any

import pytest

from purser.operator.model import RuntimeKind

from .wanteds import container, daemon_set, host_folders, variables

TOOLKIT = "nvidia-container-toolkit-ctr"


def toolkit(kind: RuntimeKind, env: dict[str, str] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    section = {"env": [{"name": name, "value": value} for name, value in (env or {}).items()]}
    obj = daemon_set(f"purser-container-toolkit-{kind.label}", {"toolkit": section}, runtimes=(kind,))
    body = container(TOOLKIT, obj)
    return variables(body), host_folders(body, obj)


def on_host(path: str, folders: dict[str, str]) -> str:
    """The host's path of one in the container."""
    folder, _, name = path.rpartition("/")
    return f"{folders[folder]}/{name}"


@pytest.mark.parametrize(
    ("kind", "config", "drop_in", "socket", "source"),
    [
        (
            RuntimeKind("containerd"),
            "/etc/containerd/config.toml",
            "/etc/containerd/conf.d/99-nvidia.toml",
            "/run/containerd/containerd.sock",
            None,
        ),
        (
            RuntimeKind("containerd", "k3s"),
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
            "/run/k3s/containerd/containerd.sock",
            "file=/host/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        ),
        (
            RuntimeKind("containerd", "rke2"),
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            "/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/99-nvidia.toml",
            "/run/k3s/containerd/containerd.sock",
            "file=/host/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        ),
        (
            RuntimeKind("containerd", "k3s", config_v2=True),
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.d/99-nvidia.toml",
            "/run/k3s/containerd/containerd.sock",
            "file=/host/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        ),
        (
            RuntimeKind("containerd", "rke2", config_v2=True, cdi=False),
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.d/99-nvidia.toml",
            "/run/k3s/containerd/containerd.sock",
            "file=/host/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        ),
        (
            RuntimeKind("containerd", "k0s"),
            "/run/k0s/containerd-cri.toml",
            "/etc/k0s/containerd.d/nvidia.toml",
            "/run/k0s/containerd.sock",
            "file=/host/run/k0s/containerd-cri.toml",
        ),
        (
            RuntimeKind("containerd", "microk8s"),
            "/var/snap/microk8s/current/args/containerd-template.toml",
            "/etc/containerd/conf.d/99-nvidia.toml",
            "/var/snap/microk8s/common/run/containerd.sock",
            "file=/host/var/snap/microk8s/current/args/containerd.toml",
        ),
        (RuntimeKind("crio"), "/etc/crio/config.toml", "/etc/crio/crio.conf.d/99-nvidia.conf", None, None),
        (RuntimeKind("docker"), "/etc/docker/daemon.json", None, "/var/run/docker.sock", None),
        (RuntimeKind("docker", "k3s"), "/etc/docker/daemon.json", None, "/var/run/docker.sock", None),
    ],
    ids=lambda value: value.label if isinstance(value, RuntimeKind) else "",
)
def test_a_runtimes_files(
    kind: RuntimeKind, config: str, drop_in: str | None, socket: str | None, source: str | None
) -> None:
    env, folders = toolkit(kind)
    prefix = {"containerd": "CONTAINERD", "crio": "CRIO", "docker": "DOCKER"}[kind.runtime]
    assert env["RUNTIME"] == kind.runtime
    assert on_host(env["RUNTIME_CONFIG"], folders) == config
    assert env[f"{prefix}_CONFIG"] == env["RUNTIME_CONFIG"]
    assert ("RUNTIME_DROP_IN_CONFIG" in env and on_host(env["RUNTIME_DROP_IN_CONFIG"], folders)) == (drop_in or False)
    assert env.get("RUNTIME_DROP_IN_CONFIG_HOST_PATH") == drop_in
    assert ("RUNTIME_SOCKET" in env and on_host(env["RUNTIME_SOCKET"], folders)) == (socket or False)
    assert env.get("RUNTIME_CONFIG_SOURCE") == source
    others = {"CONTAINERD", "CRIO", "DOCKER"} - {prefix}
    assert not [name for name in env if name.startswith(tuple(f"{other}_CONFIG" for other in others))]


def test_paths_that_users_give_are_the_hosts_and_win_on_their_own_runtime() -> None:
    given = {
        "CONTAINERD_CONFIG": "/opt/c/config.toml",
        "CONTAINERD_SOCKET": "/opt/run/c.sock",
        "RUNTIME_CONFIG_SOURCE": "command,file=/opt/c/source.toml",
        "LOG_LEVEL": "debug",
    }
    env, folders = toolkit(RuntimeKind("containerd", "k3s"), given)
    assert on_host(env["CONTAINERD_CONFIG"], folders) == on_host(env["RUNTIME_CONFIG"], folders) == "/opt/c/config.toml"
    assert on_host(env["RUNTIME_SOCKET"], folders) == "/opt/run/c.sock"
    assert env["RUNTIME_CONFIG_SOURCE"] == "command,file=/host/opt/c/source.toml"
    assert env["LOG_LEVEL"] == "debug"
    env, folders = toolkit(RuntimeKind("docker"), given)
    assert on_host(env["DOCKER_CONFIG"], folders) == "/etc/docker/daemon.json"
    assert "CONTAINERD_CONFIG" not in env


@pytest.mark.parametrize(
    ("kind", "given", "root"),
    [
        (RuntimeKind("containerd"), "", "/var/lib/kubelet"),
        (RuntimeKind("containerd", "k3s"), "", "/var/lib/kubelet"),
        (RuntimeKind("containerd", "rke2"), "", "/var/lib/kubelet"),
        (RuntimeKind("containerd", "k0s"), "", "/var/lib/k0s/kubelet"),
        (RuntimeKind("docker", "k0s"), "", "/var/lib/k0s/kubelet"),
        (RuntimeKind("containerd", "microk8s"), "", "/var/snap/microk8s/common/var/lib/kubelet"),
        (RuntimeKind("containerd", "k0s"), "/data/kubelet/", "/data/kubelet"),
    ],
    ids=["plain", "k3s", "rke2", "k0s", "k0s on docker", "microk8s", "given"],
)
@pytest.mark.parametrize("flavor", ["purser", "nvidia"])
def test_kubelets_root(kind: RuntimeKind, given: str, root: str, flavor: str) -> None:
    spec = {"devicePlugin": {"flavor": flavor}, "hostPaths": {"kubeletRootDir": given}}
    obj = daemon_set(f"purser-device-plugin-{kind.label}", spec, runtimes=(kind,))
    body = obj["spec"]["template"]["spec"]["containers"][0]
    assert host_folders(body, obj)["/var/lib/kubelet/device-plugins"] == f"{root}/device-plugins"
    if flavor == "purser":
        assert f"--kubelet-dir=/host{root}" in body["args"]
    exporter = daemon_set(f"purser-dcgm-exporter-{kind.label}", spec, runtimes=(kind,))
    mounted = host_folders(container("nvidia-dcgm-exporter", exporter), exporter)
    assert mounted["/var/lib/kubelet/pod-resources"] == f"{root}/pod-resources"


NVIDIA: dict[str, Any] = {"devicePlugin": {"flavor": "nvidia"}}


@pytest.mark.parametrize(
    ("kind", "spec", "cdi"),
    [
        (RuntimeKind("containerd"), NVIDIA, True),
        (RuntimeKind("crio"), NVIDIA, True),
        (RuntimeKind("containerd", cdi=False), NVIDIA, False),
        (RuntimeKind("docker"), NVIDIA, False),
        (RuntimeKind("containerd"), {}, True),
        (RuntimeKind("docker"), {}, False),
        (RuntimeKind("containerd"), {"devicePlugin": {"enabled": False}}, False),
        (RuntimeKind("containerd"), {**NVIDIA, "cdi": {"enabled": False}}, False),
    ],
    ids=[
        *("containerd", "crio", "an old containerd", "docker", "purser's agent", "purser's agent on docker"),
        *("somebody else's plugin", "switched off"),
    ],
)
def test_cdi_is_used_only_where_the_runtime_and_the_plugin_can(
    kind: RuntimeKind, spec: dict[str, Any], cdi: bool
) -> None:
    obj = daemon_set(f"purser-container-toolkit-{kind.label}", spec, runtimes=(kind,))
    env = variables(container(TOOLKIT, obj))
    assert (env.get("CDI_ENABLED") == "true") is cdi
    assert env["NVIDIA_RUNTIME_SET_AS_DEFAULT"] == ("false" if cdi else "true")
    if "flavor" in spec.get("devicePlugin", {}):
        plugin = daemon_set(f"purser-device-plugin-{kind.label}", spec, runtimes=(kind,))
        strategy = variables(container("nvidia-device-plugin", plugin))["DEVICE_LIST_STRATEGY"]
        assert (strategy == "cdi-annotations,cdi-cri") is cdi


def test_pods_with_all_gpus_have_the_runtime_class_but_not_on_docker() -> None:
    for name in ("operator-validator", "gpu-feature-discovery", "dcgm-exporter"):
        for kind, expected in ((RuntimeKind("containerd", "k0s"), "nvidia"), (RuntimeKind("docker"), None)):
            pod = daemon_set(f"purser-{name}-{kind.label}", runtimes=(kind,))["spec"]["template"]["spec"]
            assert pod.get("runtimeClassName") == expected
