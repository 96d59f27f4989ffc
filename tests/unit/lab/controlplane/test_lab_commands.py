"""The command lines and files of both generations of Kubernetes: what one of them would refuse is not in them."""

from pathlib import Path

import pytest

from purser.lab.controlplane.commands import Ports, SharedFiles, controller_manager_arguments, scheduler_config
from purser.lab.controlplane.credentials import PemFiles

OLD, NEW = (1, 20), (1, 36)
PORTS = Ports(1, 2, 3, 4, 5, 6)


@pytest.fixture
def files(tmp_path: Path) -> SharedFiles:
    pair = PemFiles(tmp_path / "crt", tmp_path / "key")
    return SharedFiles(tmp_path, pair, pair, pair, pair, tmp_path / "tokens")


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


def test_only_the_old_controller_manager_has_a_plain_port_to_close(files: SharedFiles) -> None:
    def arguments(version: tuple[int, int]) -> list[str]:
        return controller_manager_arguments(files, PORTS, Path("/k"), version, ("nodelifecycle",), "1h")

    assert "--port=0" in arguments(OLD)
    assert "--port=0" not in arguments(NEW)
    assert any(each.startswith("--controllers=*,") and each.endswith("-nodelifecycle") for each in arguments(NEW))
