"""The node's folder: reproducible, shared between processes, changed atomically."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from purser.core.mig.profiles import MAX_MEMORY_SLICES
from purser.lab.driver import DriverKind, SimulatedDriver, profiles, state
from purser.lab.driver.compile import SOURCE_DIR
from purser.lab.driver.parts import ProcessLoad
from purser.lab.driver.state import gpu_uuid

pytestmark = pytest.mark.processes

Create = Callable[..., SimulatedDriver]


@pytest.fixture
def node(create: Create) -> SimulatedDriver:
    return create("t4-4", kind=DriverKind.PYTHON)


def test_uuids_depend_on_node_and_index_alone(tmp_path: Path) -> None:
    first = SimulatedDriver.create(tmp_path / "a", "node-1", "t4-4", kind=DriverKind.PYTHON)
    again = SimulatedDriver.create(tmp_path / "b", "node-1", "h100-8", kind=DriverKind.PYTHON)
    other = SimulatedDriver.create(tmp_path / "c", "node-2", "t4-4", kind=DriverKind.PYTHON)
    assert first.uuids == again.uuids[:4]
    assert not set(first.uuids) & set(other.uuids)
    assert gpu_uuid("n1", 0) == "GPU-7a26f276-fcf7-500e-a819-87eae607ca92", "labs of other versions have the same"


def test_a_gpu_is_named_by_index_or_uuid(node: SimulatedDriver) -> None:
    node.set_memory_used(1, 100)
    node.set_memory_used(node.uuids[2], 200)
    assert [gpu.memory_used_mib for gpu in node.state.gpus] == [0, 100, 200, 0]
    for unknown in (4, -1, "GPU-unknown"):
        with pytest.raises(LookupError, match="has no GPU"):
            node.lose_gpu(unknown)
        with pytest.raises(LookupError, match="has no GPU"):
            node.inject_xid(unknown, 79)


def test_another_process_can_put_faults_in(node: SimulatedDriver) -> None:
    driver = node.open()
    driver.scan()
    SimulatedDriver(node.folder).lose_gpu(0)
    assert driver.scan()[0].fault is not None
    driver.close()


def test_changes_from_many_threads_all_count(node: SimulatedDriver) -> None:
    def work(first_pid: int) -> None:
        for pid in range(first_pid, first_pid + 20):
            node.add_process(0, pid, ProcessLoad(memory_mib=1))

    threads = [threading.Thread(target=work, args=(number * 100,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert node.state.gpus[0].total_used_mib == 80


def test_a_removed_gpu_leaves_the_bus(node: SimulatedDriver) -> None:
    folder = node.sysfs_root / "bus/pci/devices/0000:5e:00.0"
    assert (folder / "numa_node").read_text() == "0\n"
    assert (folder / "vendor").read_text() == "0x10de\n"
    assert (folder / "device").read_text() == "0x1eb8\n"
    assert (folder / "subsystem_device").read_text() == "0x12a2\n"
    node.remove_gpu(1)
    assert not folder.exists()
    node.restore_gpu(1)
    assert (folder / "local_cpulist").read_text() == "0-15,32-47\n"


def test_creating_a_node_again_makes_it_healthy(node: SimulatedDriver) -> None:
    node.lose_gpu(0)
    again = SimulatedDriver.create(node.folder, "node-1", "t4-4", kind=DriverKind.PYTHON)
    assert not again.state.gpus[0].lost
    assert again.state.events == ()


def test_a_node_can_be_created_again_in_python_and_while_its_driver_is_open(create: Create) -> None:
    node = create("t4-4")
    driver = node.open()
    assert len(driver.scan()) == 4
    again = create("h100-8")
    assert len(driver.reopen()) == 8
    driver.close()
    assert create("t4-4", kind=DriverKind.PYTHON).kind is DriverKind.PYTHON
    assert again.kind is DriverKind.PYTHON


def test_a_reset_ends_what_ran_on_the_gpu(node: SimulatedDriver) -> None:
    node.add_process(0, 1, ProcessLoad(memory_mib=100))
    node.set_memory_used(0, 50)
    node.lose_gpu(0)
    node.recover_gpu(0)
    assert node.state.gpus[0].total_used_mib == 0


def test_the_library_has_the_room_that_is_counted_on() -> None:
    header = (SOURCE_DIR / "simulated.h").read_text()
    room = {name: int(number) for name, number in re.findall(r"\b(MAX_\w+) = (\d+)", header)}
    counted_on = {
        "MAX_GPUS": profiles.MAX_GPUS,
        "MAX_LINKS": profiles.MAX_NVLINKS,
        "MAX_PROCESSES": state.MAX_PROCESSES,
        "MAX_FAILURES": state.MAX_FAILURES,
        "MAX_LACKS": profiles.MAX_LACKS,
        "MAX_EVENTS": state.MAX_KEPT_EVENTS,
        "MAX_PAGES": state.MAX_PAGES,
        "MAX_SLICES": MAX_MEMORY_SLICES,
    }
    assert {name: room[name] for name in counted_on} == counted_on
