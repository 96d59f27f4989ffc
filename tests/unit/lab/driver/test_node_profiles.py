"""Profiles: the shipped ones load, a bad one says file, field and fix."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from purser.core.model import PcieLevel
from purser.lab.driver import ProfileError, profiles

GOOD: dict[str, Any] = {
    "description": "two cards",
    "driver_version": "550.163.01",
    "cuda_version": "12.4",
    "numa": [{"node": 0, "cpus": "0-3"}],
    "gpus": [
        {"model": "tesla-t4", "pci": "0000:01:00.0", "numa_node": 0},
        {"model": "tesla-t4", "pci": "0000:02:00.0"},
    ],
}


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}))
    return path


def test_any_file_is_a_profile(tmp_path: Path) -> None:
    profile = profiles.load(write(tmp_path))
    assert len(profile.gpus) == 2
    assert profile.level_between(0, 1) is PcieLevel.CROSS_CPU


def test_a_profile_brings_models_of_its_own(tmp_path: Path) -> None:
    model = {
        "name": "NVIDIA X1",
        "memory_mib": 1000,
        "pci_device_id": 1,
        "pci_subsystem_id": 1,
        "compute_capability": "9.9",
        "architecture": "hopper",
        "power_limit_watts": 10,
        "idle_watts": 1,
    }
    profile = profiles.load(write(tmp_path, models={"x1": model}, gpus=[{"model": "x1", "pci": "0000:01:00.0"}]))
    assert profile.model_of(profile.gpus[0]).name == "NVIDIA X1"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"gpu": []}, "unknown field `gpu`", id="a field that does not exist"),
        pytest.param({"cuda_version": 12.4}, r"Expected `str`, got `float` - at `\$.cuda_version`", id="a wrong type"),
        pytest.param({"cuda_version": "12"}, "cuda_version", id="a version without its second number"),
        pytest.param(
            {"gpus": [{"model": "t4", "pci": "0000:01:00.0"}]},
            r"gpus\[0\].model: unknown model 't4': must be one of .*tesla-t4",
            id="an unknown model",
        ),
        pytest.param(
            {"gpus": [{"model": "tesla-t4", "pci": "1"}]},
            r"gpus\[0\].pci: '1' is not a PCI address",
            id="a bad address",
        ),
        pytest.param(
            {"gpus": [{"model": "tesla-t4", "pci": "0000:01:00.0"}, {"model": "tesla-t4", "pci": "01:00.0"}]},
            r"gpus\[1\].pci: 01:00.0 is already used by gpus\[0\].pci",
            id="an address twice",
        ),
        pytest.param({"numa": []}, r"gpus\[0\].numa_node: node 0 is not in numa", id="an undeclared NUMA node"),
        pytest.param(
            {"numa": [{"node": 0, "cpus": "x"}]}, r"numa\[0\].cpus: 'x' is not a CPU list", id="a bad CPU list"
        ),
        pytest.param({"pcie": {"near": [[0, 1]]}}, "Invalid enum value 'near'", id="an unknown level"),
        pytest.param(
            {"pcie": {"host-bridge": [[0, 2]]}},
            r"pcie.host-bridge\[0\]: GPU 2 is not one of",
            id="a group with no such GPU",
        ),
        pytest.param(
            {"bridges": [{"between": [0, 0], "links": 1}]},
            r"bridges\[0\].between: must be two different GPUs",
            id="a bridge to itself",
        ),
        pytest.param(
            {"bridges": [{"between": [0, 1], "links": 37}]}, "GPU 0 has 37 NVLinks", id="more links than there can be"
        ),
        pytest.param(
            {"nvswitch": {"links_per_gpu": 1, "pci": ["0000:01:00.0"]}},
            r"nvswitch.pci\[0\]: 0000:01:00.0 is already used by gpus\[0\].pci",
            id="a switch in a GPU's place",
        ),
        pytest.param(
            {"models": {"x": {"name": "X"}}}, r"missing required field `memory_mib` - at `\$.models", id="half a model"
        ),
        pytest.param(
            {"gpus": [{"model": "tesla-t4", "pci": f"0000:{bus:02x}:00.0"} for bus in range(33)]},
            r"length <= 32",
            id="more GPUs than there is room for",
        ),
        pytest.param(
            {"numa": [{"node": 0, "cpus": "0-3"}, {"node": 1, "cpus": "3-7"}]},
            r"numa\[1\].cpus: CPU 3 is also in numa\[0\]",
            id="a CPU on two nodes",
        ),
        pytest.param(
            {"numa": [{"node": 0, "cpus": "0-3"}, {"node": 0, "cpus": "4"}]},
            r"numa\[1\].node: node 0 is already defined",
            id="a node twice",
        ),
        pytest.param(
            {"cpu": {"threads_per_core": 3}},
            r"the number of CPUs, 4, is not a multiple of cpu.threads_per_core \(3\)",
            id="a core that is not whole",
        ),
        pytest.param(
            {"cpu": {"sockets": 2}}, "1 NUMA node with CPUs cannot be divided evenly among 2", id="too many sockets"
        ),
        pytest.param(
            {"numa": [{"node": 0, "cpus": "0", "memory": "much"}]},
            r"numa\[0\].memory: 'much' is not a quantity",
            id="no amount of memory",
        ),
        pytest.param(
            {"numa": [{"node": 0, "cpus": "0", "distances": [10, 20]}]},
            r"numa\[0\].distances: 2 numbers for 1 node",
            id="distances to nobody",
        ),
        pytest.param({"gpus": [], "numa": [{"node": 0}]}, "numa: no node has CPUs", id="no CPUs at all"),
        pytest.param(
            {"kubelet": {"topologyManagerPolicy": "strict"}},
            r"Invalid enum value 'strict' - at `\$.kubelet.topologyManagerPolicy`",
            id="an unknown policy",
        ),
        pytest.param({"kubelet": {"topologyPolicy": "none"}}, "unknown field `topologyPolicy`", id="an unknown field"),
        pytest.param(
            {"kubelet": {"version": "1.36"}},
            "kubelet.version: 1.36 is not a supported kubelet version: must be v1.20.0 or newer",
            id="no version",
        ),
        pytest.param(
            {"kubelet": {"reservedSystemCPUs": "3-4"}},
            r"kubelet.reservedSystemCPUs: the node does not have CPUs 4: it has 0-3",
            id="reserved CPUs that are not there",
        ),
        pytest.param(
            {"kubelet": {"cpuManagerPolicyOptions": {"full-cores": "true"}}},
            r"kubelet.cpuManagerPolicyOptions.full-cores: unknown option: must be one of full-pcpus-only",
            id="an unknown option",
        ),
        pytest.param(
            {"kubelet": {"topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "4"}}},
            r"max-allowable-numa-nodes: invalid value '4': must be an integer of at least 8",
            id="fewer than eight nodes",
        ),
        pytest.param(
            {"kubelet": {"version": "v1.20.2", "memoryManagerPolicy": "Static"}},
            "memoryManagerPolicy: kubelet v1.20.2 does not have a memory manager",
            id="a memory manager before its time",
        ),
        pytest.param(
            {
                "kubelet": {
                    "memoryManagerPolicy": "Static",
                    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
                }
            },
            "reservedMemory: the memory adds up to 1073741824 bytes, but .* add up to 104857600",
            id="reserved memory that does not add up",
        ),
        pytest.param(
            {"kubelet": {"reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi"}}]}},
            r"reservedMemory\[0\].numaNode: the node does not have NUMA node 1",
            id="reserved memory on no node",
        ),
    ],
)
def test_a_bad_profile_names_file_field_and_fix(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(ProfileError, match=problem) as raised:
        profiles.load(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_an_unknown_architecture_names_the_known_ones(tmp_path: Path) -> None:
    model = {
        "name": "X",
        "memory_mib": 1,
        "pci_device_id": 1,
        "pci_subsystem_id": 1,
        "compute_capability": "1.0",
        "architecture": "tesla",
        "power_limit_watts": 1,
        "idle_watts": 1,
    }
    with pytest.raises(ProfileError, match=r"models.x.architecture: 'tesla' is unknown to NVML: .*hopper"):
        profiles.load(write(tmp_path, models={"x": model}))


@pytest.mark.parametrize("content", ["{", "[]", "\x00", ""])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(ProfileError, match=r"bad\.yaml"):
        profiles.load(path)


def test_a_name_that_is_no_profile_lists_those_that_are() -> None:
    with pytest.raises(ProfileError, match=r"profile a100 does not exist: must be a file, or one of a100-40gb-8, "):
        profiles.load("a100")
