"""kubelet's command line and file for both generations of Kubernetes: what one would refuse is not in them."""

from pathlib import Path

import pytest

from purser.lab.controlplane.commands import SharedFiles
from purser.lab.controlplane.credentials import PemFiles

from .kubernetes.kubelet import KubeletPorts, kubelet_arguments, kubelet_config

OLD, NEW = (1, 20), (1, 36)
PORTS = KubeletPorts(1, 2)
ADDRESS = "198.18.1.1"
SOCKET = Path("/c/containerd.sock")


@pytest.fixture
def files(tmp_path: Path) -> SharedFiles:
    pair = PemFiles(tmp_path / "crt", tmp_path / "key")
    return SharedFiles(tmp_path, pair, pair, pair, pair, tmp_path / "tokens")


def test_the_old_kubelet_gets_its_runtime_by_flags(files: SharedFiles) -> None:
    arguments = kubelet_arguments(OLD, Path("/c"), Path("/k"), "node", ADDRESS, SOCKET, Path("/f"))
    assert {"--container-runtime=remote", "--container-runtime-endpoint=unix:///c/containerd.sock"} <= set(arguments)
    config = kubelet_config(OLD, files, ADDRESS, PORTS, SOCKET, {})
    assert not {"containerRuntimeEndpoint", "failCgroupV1"} & config.keys()


def test_the_new_kubelet_gets_its_runtime_by_its_file_and_accepts_cgroup_v1(files: SharedFiles) -> None:
    arguments = kubelet_arguments(NEW, Path("/c"), Path("/k"), "node", ADDRESS, SOCKET, Path("/f"))
    assert not [each for each in arguments if "runtime" in each or "infra" in each]
    config = kubelet_config(NEW, files, ADDRESS, PORTS, SOCKET, {})
    assert config["containerRuntimeEndpoint"] == "unix:///c/containerd.sock"
    assert config["failCgroupV1"] is False


def test_what_the_caller_wants_of_kubelet_wins(files: SharedFiles) -> None:
    config = kubelet_config(OLD, files, ADDRESS, PORTS, SOCKET, {"cpuManagerPolicy": "static", "failSwapOn": True})
    assert (config["cpuManagerPolicy"], config["failSwapOn"]) == ("static", True)
