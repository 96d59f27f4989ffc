"""The command lines and files of both generations of Kubernetes: what one of them would refuse is not in them."""

from pathlib import Path

import pytest

from .kubernetes.control_plane import Files, Ports, controller_manager_arguments, scheduler_config
from .kubernetes.credentials import KeyPair
from .kubernetes.kubelet import kubelet_arguments, kubelet_config

OLD, NEW = (1, 20), (1, 36)
PORTS = Ports(1, 2, 3, 4, 5, 6, 7, 8)
SOCKET = Path("/c/containerd.sock")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    pair = KeyPair(tmp_path / "crt", tmp_path / "key")
    return Files(tmp_path, pair, pair, pair, pair, tmp_path / "tokens")


def test_the_old_kubelet_is_told_its_runtime_by_flags(files: Files) -> None:
    arguments = kubelet_arguments(OLD, Path("/c"), Path("/k"), "node", SOCKET, Path("/f"))
    assert {"--container-runtime=remote", "--container-runtime-endpoint=unix:///c/containerd.sock"} <= set(arguments)
    assert not {"containerRuntimeEndpoint", "failCgroupV1"} & kubelet_config(OLD, files, PORTS, SOCKET, {}).keys()


def test_the_new_kubelet_is_told_its_runtime_by_its_file_and_accepts_cgroup_v1(files: Files) -> None:
    arguments = kubelet_arguments(NEW, Path("/c"), Path("/k"), "node", SOCKET, Path("/f"))
    assert not [each for each in arguments if "runtime" in each or "infra" in each]
    config = kubelet_config(NEW, files, PORTS, SOCKET, {})
    assert config["containerRuntimeEndpoint"] == "unix:///c/containerd.sock"
    assert config["failCgroupV1"] is False


def test_what_the_caller_wants_of_kubelet_wins(files: Files) -> None:
    config = kubelet_config(OLD, files, PORTS, SOCKET, {"cpuManagerPolicy": "static", "failSwapOn": True})
    assert (config["cpuManagerPolicy"], config["failSwapOn"]) == ("static", True)


@pytest.mark.parametrize(
    ("version", "api_version", "has_addresses"),
    [(OLD, "v1beta1", True), ((1, 23), "v1beta2", False), (NEW, "v1", False)],
    ids=["1.20", "1.23", "1.36"],
)
def test_the_scheduler_gets_the_configuration_of_its_generation(
    version: tuple[int, int], api_version: str, has_addresses: bool
) -> None:
    config = scheduler_config(version, PORTS, Path("/k"), {"percentageOfNodesToScore": 100})
    assert config["apiVersion"] == f"kubescheduler.config.k8s.io/{api_version}"
    assert ("healthzBindAddress" in config) is has_addresses
    assert config["percentageOfNodesToScore"] == 100


def test_only_the_old_controller_manager_has_a_plain_port_to_close(files: Files) -> None:
    def arguments(version: tuple[int, int]) -> list[str]:
        return controller_manager_arguments(files, PORTS, Path("/k"), version, ("nodelifecycle",), "1h")

    assert "--port=0" in arguments(OLD)
    assert "--port=0" not in arguments(NEW)
    assert any(each.startswith("--controllers=*,") and each.endswith("-nodelifecycle") for each in arguments(NEW))
