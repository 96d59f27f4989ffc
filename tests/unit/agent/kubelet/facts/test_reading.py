"""kubelet's files as they are found."""

import pytest

from purser.agent.kubelet.facts.reading import MAX_STATE_BYTES, KubeletSources, read
from purser.core.kubelet.devicemanager import checkpoint
from purser.core.kubelet.machine import Cpu, Machine, NumaNode
from purser.lab.driver.sysfs_machine import write_machine

MACHINE = Machine((NumaNode(0, {"memory": 8 << 30}, (10,)),), (Cpu(0, 0, 0, 0),), 1)


@pytest.fixture
def sources(tmp_path):
    write_machine(tmp_path / "sys", MACHINE)
    (tmp_path / "config.yaml").write_text("kind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n")
    (tmp_path / "devices").write_text(checkpoint.encode({}, {"example.com/nic": ("n0",)}))
    names = ("config.yaml", "devices", "cpus", "memory", "kubelet.sock", "sys")
    return KubeletSources(*(tmp_path / name for name in names))


def test_everything_that_matters_is_read(sources) -> None:
    found = read(sources, "v1.33.0")
    assert not found.problems
    assert found.devices.registered == {"example.com/nic": ("n0",)}


def test_a_file_that_would_cost_the_agent_its_memory_is_not_read(sources) -> None:
    text = sources.devices.read_text()
    sources.devices.write_text(text + " " * (MAX_STATE_BYTES - len(text)))
    assert not read(sources, "v1.33.0").problems
    sources.devices.write_text(text + " " * (MAX_STATE_BYTES - len(text) + 1))
    found = read(sources, "v1.33.0")
    assert found.devices is None
    assert f"larger than {MAX_STATE_BYTES} bytes" in found.problems["devices"]


def test_the_limit_is_a_small_part_of_what_an_agent_may_have() -> None:
    assert MAX_STATE_BYTES <= 80 * 1024 * 1024 / 8


@pytest.mark.parametrize(("version", "problems"), [("v1.20.2", set()), ("v1.33.0", {"memory"})])
def test_a_kubelet_without_memory_manager_needs_no_file_of_it(sources, version, problems) -> None:
    with sources.config.open("a") as config:
        config.write("memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n")
    assert read(sources, version).problems.keys() == problems
