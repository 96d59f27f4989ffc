"""What is done on a GPU for a grant, and what NVML's refusals are in words."""

import errno
import fcntl
import threading
from pathlib import Path
from typing import TextIO

import pytest
from structlog.testing import capture_logs

from purser.agent.checking.mig import check_on_demand, problems_of_instances
from purser.agent.checking.results import CheckState
from purser.agent.instances.cutting import GpuPartitioner
from purser.agent.instances.planning import BlockedError, ExistingInstance, PartitioningPlan, existing_instances, plan
from purser.agent.instances.records import exclusive_lock, read_record, record_path
from purser.agent.nvml import Driver, Gpu, GpuInstance, MigCallError, MigMode, MigTrouble, NullDriver
from purser.agent.settings import AgentSettings
from purser.core.mig import MIG_KINDS, MigGeometryError, MigPlacement
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.node_mig import create_mig, mig_states, set_mig

KIND = MIG_KINDS["A100-40GB"]
HALF, ONE, TWO = MigPlacement("3g.20gb", 0), MigPlacement("1g.5gb", 0), MigPlacement("2g.10gb", 2)


def there(placement: MigPlacement, id_: int = 7, computes: int = 1, *, is_known: bool = True) -> ExistingInstance:
    return ExistingInstance(placement, id_, computes, is_known)


def test_what_a_container_was_given_is_there_still_or_completed() -> None:
    assert plan(KIND, [there(HALF)], {HALF}, [HALF], {HALF}) == PartitioningPlan()
    half_made = there(HALF, computes=0)
    assert plan(KIND, [half_made], {HALF}, [HALF], {HALF}) == PartitioningPlan(fill=(half_made,))


def test_what_is_in_the_way_goes_if_it_is_the_agents_own_and_unused() -> None:
    small, other = there(ONE, 1), there(TWO, 2)
    found = plan(KIND, [small, other], {ONE, TWO}, [HALF], set())
    assert found == PartitioningPlan(destroy=(small, other), create=(HALF,))
    assert plan(KIND, [there(HALF)], {HALF}, [HALF], set()) == PartitioningPlan(destroy=(there(HALF),), create=(HALF,))
    split = there(HALF, computes=2)  # somebody divided it by hand
    assert plan(KIND, [split], {HALF}, [HALF], {HALF}) == PartitioningPlan(destroy=(split,), create=(HALF,))


@pytest.mark.parametrize(
    ("found", "owned", "named", "why"),
    [
        (
            there(TWO),
            set(),
            set(),
            r"taken by GPU instance 7 \(2g.10gb at memory slice 2\), which Purser did not create",
        ),
        (there(HALF), set(), set(), "which Purser did not create"),
        (there(TWO), {TWO}, {TWO}, "is allocated to another container"),
        (there(TWO, is_known=False), {TWO}, set(), "which Purser did not create"),
    ],
)
def test_anything_else_in_the_way_is_named(
    found: ExistingInstance, owned: set[MigPlacement], named: set[MigPlacement], why: str
) -> None:
    with pytest.raises(BlockedError, match=why):
        plan(KIND, [found], owned, [HALF], named)


def test_what_the_gpu_does_not_offer_is_refused() -> None:
    with pytest.raises(MigGeometryError, match="has no profile 9g"):
        plan(KIND, [], set(), [MigPlacement("9g.90gb", 0)], set())


def test_an_instance_of_an_unknown_profile_is_as_much_as_it_takes() -> None:
    graphics = GpuInstance(id=3, number=12, start=4, size=4, computes=1)
    (found,) = existing_instances(KIND, [graphics])
    assert (found.placement, found.is_known) == (MigPlacement("3g.20gb", 4), False)
    odd = existing_instances(KIND, [GpuInstance(id=3, number=99, start=1, size=3, computes=1)])
    assert sorted(each.placement.start for each in odd) == [1, 2, 3]


@pytest.fixture
def node(tmp_path: Path) -> SimulatedDriver:
    node = SimulatedDriver.create(tmp_path / "driver", "n", "a100-40gb-8", kind=DriverKind.PYTHON)
    set_mig(node.folder, 0, enabled=True)
    return node


@pytest.fixture
def driver(node: SimulatedDriver) -> Driver:
    driver = node.open()
    driver.scan()
    return driver


REFUSALS = [
    (19, MigTrouble.IN_USE, "processes are running on the instance"),
    (23, MigTrouble.NO_ROOM, "the GPU has no room for the instance at that position"),
    (2, MigTrouble.NOT_OFFERED, "the driver does not support the instance on this GPU or at this position"),
    (3, MigTrouble.OFF, "MIG is not enabled on the GPU, or the node is a vGPU guest"),
    (4, MigTrouble.NO_PERMISSION, "no permission: only root with CAP_SYS_ADMIN"),
    (15, MigTrouble.LOST, "the GPU is lost and cannot be reached"),
    (16, MigTrouble.LOST, "the GPU needs a reset"),
    (999, MigTrouble.OTHER, "Unknown Error"),
]


@pytest.mark.parametrize(("code", "trouble", "said"), REFUSALS)
def test_each_answer_of_nvml_is_a_sentence(
    node: SimulatedDriver, driver: Driver, code: int, trouble: MigTrouble, said: str
) -> None:
    node.fail_call(0, "nvmlDeviceCreateGpuInstanceWithPlacement", code)
    with pytest.raises(MigCallError, match=said) as refused:
        driver.create_instance(node.uuids[0], 2, 0, 4)
    assert refused.value.trouble is trouble


def test_what_cannot_be_completed_is_taken_back(node: SimulatedDriver, driver: Driver, tmp_path: Path) -> None:
    node.fail_call(0, "nvmlGpuInstanceCreateComputeInstance", 23)
    cutter = GpuPartitioner(driver, tmp_path, node.uuids[0], KIND)
    with pytest.raises(MigCallError, match="creating the compute instance"):
        cutter.ensure((HALF,), frozenset())
    assert not mig_states(node.folder)[0].instances
    assert cutter.look(frozenset()).devices == {}
    assert read_record(record_path(tmp_path, node.uuids[0]), node.uuids[0]) == {}


@pytest.mark.parametrize("text", ["", "{", '{"gpu":"another","instances":[]}', '{"gpu":1}'])
def test_without_its_record_the_agents_own_are_what_pods_hold(
    node: SimulatedDriver, driver: Driver, tmp_path: Path, text: str
) -> None:
    gpu = node.uuids[0]
    cutter = GpuPartitioner(driver, tmp_path, gpu, KIND)
    cutter.ensure((HALF,), frozenset())
    other = MigPlacement("2g.10gb", 4)
    create_mig(node.folder, 0, other.profile, start=other.start)
    record_path(tmp_path, gpu).write_text(text)
    cut = cutter.look(frozenset({HALF}))
    assert (set(cut.devices), cut.foreign) == ({HALF}, (other,))


def test_a_second_agent_knows_what_the_first_one_made(node: SimulatedDriver, driver: Driver, tmp_path: Path) -> None:
    gpu = node.uuids[0]
    first = GpuPartitioner(driver, tmp_path, gpu, KIND)
    first.ensure((HALF,), frozenset())
    other = node.open()
    other.scan()
    second = GpuPartitioner(other, tmp_path, gpu, KIND)
    assert set(second.look(frozenset()).devices) == {HALF}
    assert second.sweep(frozenset({HALF}), frozenset()).devices
    assert set(second.ensure((MigPlacement("3g.20gb", 4),), frozenset({HALF})).devices) == {
        HALF,
        MigPlacement("3g.20gb", 4),
    }
    assert len(first.look(frozenset()).devices) == 2


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_once_and_gpus_are_cut(
    node: SimulatedDriver, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    cutter, lock = GpuPartitioner(driver, tmp_path / "state", node.uuids[0], KIND), fcntl.flock

    def refuse(file: int | TextIO, operation: int) -> None:
        if not isinstance(file, int):
            return lock(file, operation)  # the simulated driver's own
        raise OSError(number, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with capture_logs() as said:
        assert set(cutter.ensure((HALF,), frozenset()).devices) == {HALF}
        assert set(cutter.look(frozenset({HALF})).devices) == {HALF}
        assert not cutter.sweep(frozenset(), frozenset({HALF})).devices
    warnings = [each["event"] for each in said if each["log_level"] == "warning"]
    assert len(warnings) == 1
    assert warnings[0].startswith("The file system that holds the records of GPU instances does not support locks")


def test_nobody_cuts_a_gpu_while_another_agent_does(
    node: SimulatedDriver, driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, lock = node.uuids[0], fcntl.flock
    waits, done = threading.Event(), threading.Event()

    def flock(file: int, operation: int) -> None:
        try:
            lock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            waits.set()
            lock(file, operation)

    def cut() -> None:
        GpuPartitioner(driver, tmp_path, gpu, KIND).ensure((HALF,), frozenset())
        done.set()

    monkeypatch.setattr(fcntl, "flock", flock)
    other = threading.Thread(target=cut)
    with exclusive_lock(record_path(tmp_path, gpu)):
        other.start()
        assert waits.wait(30)
        assert not done.is_set()
        assert not mig_states(node.folder)[0].instances
        with exclusive_lock(record_path(tmp_path, node.uuids[1])):
            pass  # another GPU waits for nobody
    assert done.wait(30)
    other.join()


def test_the_check_names_what_keeps_gpus_from_being_cut(tmp_path: Path) -> None:
    on = MigMode(enabled=True, pending=True)
    gpus = [
        Gpu(index=0, uuid="GPU-0", name="NVIDIA A100-SXM4-40GB", mig=on, pci_device="20b0"),
        Gpu(index=1, uuid="GPU-1", name="NVIDIA Next", mig=on, pci_device="ffff"),
        Gpu(index=2, uuid="GPU-2", name="Tesla T4"),
    ]
    settings = AgentSettings(node_name="n", host_root=tmp_path)
    found = list(check_on_demand(settings, gpus, problems_of_instances(NullDriver("no driver"), gpus)))
    assert [(each.check, each.state, each.found) for each in found] == [
        ("GPU 0 on demand", CheckState.FAILED, "no driver"),
        ("GPU 1 on demand", CheckState.WARNING, "NVIDIA Next: Purser does not know this model's MIG profiles"),
        ("MIG capabilities", CheckState.FAILED, "/proc/driver/nvidia-caps/mig-minors does not exist"),
    ]
    (well, *_) = check_on_demand(settings, gpus[:1], {})
    assert (well.state, well.found) == (CheckState.OK, "NVIDIA A100-SXM4-40GB is partitioned as A100-40GB")
