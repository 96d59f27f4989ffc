"""The driver seam over a simulated node: one table for the real binding on the C library and for its stand-in."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.tiers import IS_LONG, some

from purser.agent.nvml import Driver, DriverError, MigMode, NullDriver, XidEvent
from purser.agent.nvml.devices import FABRIC_CALLS
from purser.agent.nvml.driver import Ecc
from purser.core.device.gpus import FabricIds
from purser.core.health.fabric import FabricState
from purser.core.health.signs import FaultKind, NvLinks, RecoveryAction, RemappedRows, Slowdown
from purser.core.model import Link, PcieLevel
from purser.lab.driver import DriverKind, SimulatedDriver, profiles
from purser.lab.driver.compile import find_compiler
from purser.lab.driver.node_mig import create_mig, destroy_mig, set_mig
from purser.lab.driver.parts import BankSpares, ClocksLimit, Fabric, GpuLoad, NvLinkError, ProcessLoad

pytestmark = pytest.mark.processes

Create = Callable[..., SimulatedDriver]
Open = Callable[[SimulatedDriver], Driver]

LONG_MS = 20_000
"""A deadline for what comes at once."""

FUNCTION_NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED, RESET_REQUIRED, UNKNOWN = 13, 4, 3, 16, 999


@pytest.fixture
def driver(node: SimulatedDriver, opened: Open) -> Driver:
    return opened(node)


# What is read


@pytest.mark.parametrize("name", some(profiles.names(), every=6))
def test_every_fact_of_a_profile_is_read_back(create: Create, opened: Open, kind: DriverKind, name: str) -> None:
    profile = profiles.load(name)
    node = create(name, kind=kind)
    driver = opened(node)
    assert driver.info().version == profile.driver_version
    assert driver.info().cuda_version == profile.cuda_version
    assert driver.info().absent is None
    gpus = driver.scan()
    assert [gpu.uuid for gpu in gpus] == list(node.uuids)
    for index, (gpu, slot) in enumerate(zip(gpus, profile.gpus, strict=True)):
        model = profile.model_of(slot)
        assert gpu.fault is None
        lacks = {each.removeprefix("nvmlDeviceGet") for each in model.lacks}
        minor, memory_mib = None if "MinorNumber" in lacks else index, 0 if "MemoryInfo" in lacks else model.memory_mib
        assert (gpu.index, gpu.minor, gpu.pci_bus_id) == (index, minor, slot.pci)
        assert (gpu.name, gpu.memory_mib) == (model.name, memory_mib)
        assert (gpu.compute_capability, gpu.architecture) == (model.compute_capability, model.architecture)
        assert (gpu.brand, gpu.numa_node) == (model.brand, slot.numa_node)
        assert gpu.mig == (MigMode(enabled=False, pending=False) if model.mig_devices else None)
        assert gpu.watches_xids == ("SupportedEventTypes" not in lacks)
        assert [link.peer for link in gpu.links] == [uuid for uuid in node.uuids if uuid != gpu.uuid]
        expected = [profile.level_between(index, other) for other in range(len(gpus)) if other != index]
        assert [link.pcie for link in gpu.links] == expected


def nvlinks(driver: Driver) -> list[list[int]]:
    """The NVLinks of every GPU to every other one, in order."""
    return [[link.nvlinks for link in gpu.links] for gpu in driver.scan()]


@pytest.mark.parametrize(
    ("name", "links"),
    some([("a100-40gb-8", 12), ("a100-80gb-8", 12), ("h100-8", 18), ("h200-8", 18), ("b200-8", 18)], every=4),
)
def test_links_to_nvswitches_are_shared_with_every_other_gpu(
    create: Create, opened: Open, kind: DriverKind, name: str, links: int
) -> None:
    assert nvlinks(opened(create(name, kind=kind))) == [[links] * 7] * 8


def test_a_dgx1_has_its_cube_mesh(create: Create, opened: Open, kind: DriverKind) -> None:
    double = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
    single = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}
    counts = {**dict.fromkeys(double, 2), **dict.fromkeys(single, 1)}
    expected = [[counts.get((min(i, j), max(i, j)), 0) for j in range(8) if j != i] for i in range(8)]
    driver = opened(create("dgx1-v100", kind=kind))
    assert nvlinks(driver) == expected
    levels = [link.pcie for link in driver.scan()[0].links]
    assert levels == [PcieLevel.SINGLE_SWITCH] + [PcieLevel.HOST_BRIDGE] * 2 + [PcieLevel.CROSS_CPU] * 4


def test_bridged_pairs_have_links_and_the_rest_has_none(create: Create, opened: Open, kind: DriverKind) -> None:
    assert nvlinks(opened(create("a100-pcie-4", kind=kind))) == [[12, 0, 0], [12, 0, 0], [0, 0, 12], [0, 0, 12]]


@pytest.mark.parametrize("end", [0, 1])
def test_a_link_that_is_down_at_one_end_is_counted_at_neither(
    create: Create, opened: Open, kind: DriverKind, end: int
) -> None:
    node = create("a100-pcie-4", kind=kind)
    node.set_nvlink(end, 3, active=False)
    assert nvlinks(opened(node))[:2] == [[11, 0, 0], [11, 0, 0]]


CLUSTER = UUID("7b968a6d-c8aa-45e1-9e07-e1e51be99c31")
STATE = FabricState
FABRICS = [
    (Fabric(cluster=CLUSTER, clique=0xFFFFFFFE), STATE.COMPLETED, FabricIds(str(CLUSTER), 0xFFFFFFFE)),
    (Fabric(cluster=UUID(int=1 << 127)), STATE.COMPLETED, FabricIds("80000000-0000-0000-0000-000000000000", 0)),
    (Fabric(clique=1), STATE.COMPLETED, None),
    (Fabric(cluster=CLUSTER, state=0), STATE.NOT_SUPPORTED, None),
    (Fabric(cluster=CLUSTER, state=1), STATE.NOT_STARTED, None),
    (Fabric(cluster=CLUSTER, state=2), STATE.IN_PROGRESS, None),
    (Fabric(cluster=CLUSTER, status=UNKNOWN), STATE.FAILED, None),
]


def test_the_nvlink_domain_that_a_gpu_has_joined(create: Create, opened: Open, kind: DriverKind) -> None:
    node = create("gb200-nvl4", kind=kind)
    driver = opened(node)
    newer, older = (call for call, _ in FABRIC_CALLS)
    domains = {gpu.fabric for gpu in driver.scan()}
    assert domains == {FabricIds("7c5f1a30-4b0e-4f8a-9d52-6e1b0c8a2f47", 32766)}
    for failing in (older, newer):
        node.clear_failures(0)
        node.fail_call(0, failing, FUNCTION_NOT_FOUND)
        for reported, state, joined in FABRICS:
            node.set_fabric(0, reported)
            [gpu, other, *_] = driver.scan()
            registration = driver.read(node.uuids[0]).registration
            assert (gpu.fabric, registration and registration.ids) == (joined, joined), reported
            assert registration is not None, reported
            assert (registration.state, bool(registration.error)) == (state, state is STATE.FAILED), reported
            assert {other.fabric} == domains
            assert gpu.as_node_gpu().fabric == joined
    node.fail_call(0, older, UNKNOWN)
    [gpu, *_] = driver.scan()
    reading = driver.read(node.uuids[0])
    assert (gpu.fabric, gpu.fault, reading.fault, reading.registration) == (None, None, None, None)


def test_an_idle_gpu_is_read(node: SimulatedDriver, driver: Driver) -> None:
    assert {gpu.fabric for gpu in driver.scan()} == {None}, "without a fabric manager they have joined nothing"
    reading = driver.read(node.uuids[0])
    assert reading.fault is None
    assert reading.ecc == Ecc(enabled=True, corrected=0, uncorrected=0)
    assert reading.remapped_rows == RemappedRows(0, 0, pending=False, failed=False)
    assert reading.recovery_action is None, "550 drivers do not tell"


def test_what_meets_the_criteria_for_a_replacement_is_read(node: SimulatedDriver, driver: Driver) -> None:
    driver.scan()
    node.set_sram_threshold_exceeded(0, True)
    node.remap_rows(0, uncorrectable=8, spares=BankSpares.NONE)
    reading = driver.read(node.uuids[0])
    assert reading.sram_threshold_exceeded
    assert reading.remapped_rows == RemappedRows(0, 8, pending=False, failed=False, exhausted_banks=8)
    for call in ("SramEccErrorStatus", "RowRemapperHistogram"):
        node.fail_call(0, f"nvmlDeviceGet{call}", UNKNOWN)
    reading = driver.read(node.uuids[0])
    assert (reading.fault, reading.sram_threshold_exceeded) == (None, False), "older drivers have no such calls"
    assert reading.remapped_rows == RemappedRows(0, 8, pending=False, failed=False)


def test_nvlinks_and_slowdowns_are_read_and_no_fault_where_they_are_not(
    create: Create, opened: Open, kind: DriverKind
) -> None:
    node = create("a100-pcie-4", kind=kind)
    driver = opened(node)
    driver.scan()
    node.set_nvlink(0, 3, active=False)
    node.add_nvlink_errors(0, 4, NvLinkError.REPLAY, 2)
    node.add_nvlink_errors(0, 5, NvLinkError.RECOVERY, 1)
    node.add_nvlink_errors(0, 5, NvLinkError.CRC_FLIT, 9)
    node.set_slowdowns(0, [ClocksLimit.POWER_CAP, ClocksLimit.HW_THERMAL, ClocksLimit.POWER_BRAKE])
    reading = driver.read(node.uuids[0])
    assert reading.nvlinks == NvLinks(frozenset(range(12)) - {3}, frozenset({3}), 3)
    assert reading.slowdowns == {Slowdown.HW_THERMAL, Slowdown.HW_POWER_BRAKE}
    for code in (UNKNOWN, NOT_SUPPORTED):
        for call in ("NvLinkState", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons"):
            node.fail_call(0, f"nvmlDeviceGet{call}", code)
        reading = driver.read(node.uuids[0])
        assert (reading.fault, reading.nvlinks, reading.slowdowns) == (None, None, frozenset())
        node.clear_failures(0)


def test_mig_devices_are_reported_as_they_come_and_go(node: SimulatedDriver, driver: Driver) -> None:
    set_mig(node.folder, 2, enabled=True)
    large, part = create_mig(node.folder, 2, "3g.20gb"), create_mig(node.folder, 2, "2g.10gb", slices=1)
    found = driver.scan()[2]
    assert (found.mig, found.is_partitioned) == (MigMode(enabled=True, pending=True), True)
    assert [(each.uuid, each.profile, each.memory_mib) for each in found.migs] == [
        (large, "3g.20gb", 19968),
        (part, "1c.2g.10gb", 9856),
    ]
    assert [(each.gi_slices, each.ci_slices, each.multiprocessors) for each in found.migs] == [(3, 3, 42), (2, 1, 14)]
    assert (found.migs[0].gpu_instance, found.migs[0].compute_instance) == (2, 0)
    destroy_mig(node.folder, large)
    assert [each.uuid for each in driver.scan()[2].migs] == [part]


def test_a_device_that_the_driver_does_not_list_is_gone(driver: Driver) -> None:
    driver.scan()
    fault = driver.read("GPU-of-another-node").fault
    assert fault is not None
    assert fault.kind is FaultKind.GONE


# What fails


def test_a_lost_gpu_keeps_its_facts_leaves_the_others_alone_and_recovers(node: SimulatedDriver, driver: Driver) -> None:
    before = driver.scan()
    node.lose_gpu(3)
    after = driver.scan()
    assert [gpu.fault is None for gpu in after] == [index != 3 for index in range(8)]
    assert after[3].fault is not None
    assert after[3].fault.kind is FaultKind.LOST
    assert (after[3].uuid, after[3].name, after[3].links) == (before[3].uuid, before[3].name, before[3].links)
    assert after[:3] == before[:3]
    assert after[4:] == before[4:], "their links to the lost one are remembered too, so that no link is one-sided"
    for index, uuid in enumerate(node.uuids):
        fault = driver.read(uuid).fault
        assert (fault.kind if fault else None) == (FaultKind.LOST if index == 3 else None)
    node.recover_gpu(3)
    assert driver.scan() == before
    assert driver.read(node.uuids[3]).fault is None


def test_a_gpu_that_was_lost_from_the_start_has_no_uuid_until_it_is_back(
    create: Create, opened: Open, kind: DriverKind
) -> None:
    node = create(kind=kind)
    node.lose_gpu(0)
    driver = opened(node)
    first = driver.scan()
    assert first[0].uuid is None
    assert first[0].fault is not None
    assert all(len(gpu.links) == 6 for gpu in first[1:])
    node.recover_gpu(0)
    second = driver.scan()
    assert second[0].uuid == node.uuids[0]
    assert all(len(gpu.links) == 7 for gpu in second)


@pytest.mark.parametrize(
    ("call", "code", "kind_of_fault"),
    some(
        [
            ("nvmlDeviceGetUUID", UNKNOWN, FaultKind.UNKNOWN),
            ("nvmlDeviceGetName", NO_PERMISSION, FaultKind.NO_PERMISSION),
            ("nvmlDeviceGetHandleByIndex", NO_PERMISSION, FaultKind.NO_PERMISSION),
            ("nvmlDeviceGetMemoryInfo", NO_PERMISSION, FaultKind.NO_PERMISSION),
            ("nvmlDeviceGetUUID", FUNCTION_NOT_FOUND, FaultKind.NOT_SUPPORTED),
            ("*", 12345, FaultKind.UNKNOWN),
            ("*", RESET_REQUIRED, FaultKind.RESET_REQUIRED),
        ],
        every=3,
    ),
)
def test_a_needed_call_that_fails_costs_that_device_only(
    node: SimulatedDriver, driver: Driver, call: str, code: int, kind_of_fault: FaultKind
) -> None:
    before = driver.scan()
    node.fail_call(5, call, code)
    after = driver.scan()
    assert after[5].fault is not None
    assert after[5].fault.kind is kind_of_fault
    assert after[5].fault.call.startswith("nvmlDeviceGet")
    assert (after[5].uuid, after[5].memory_mib) == (before[5].uuid, before[5].memory_mib)
    assert [gpu for gpu in after if gpu.fault is None] == [gpu for gpu in before if gpu.index != 5]
    node.clear_failures(5)
    assert driver.scan() == before


def test_a_gpu_whose_memory_is_no_question_is_healthy_and_its_memory_unknown(
    node: SimulatedDriver, driver: Driver
) -> None:
    """GB10 and Jetson Thor share the machine's memory."""
    node.fail_call(5, "nvmlDeviceGetMemoryInfo", NOT_SUPPORTED)
    gpu = driver.scan()[5]
    assert (gpu.fault, gpu.memory_mib, gpu.uuid) == (None, 0, node.uuids[5])
    assert driver.read(node.uuids[5]).fault is None
    assert driver.answering_uuids() == tuple(node.uuids)


def test_a_uuid_that_cannot_be_read_is_remembered_by_the_pci_address(node: SimulatedDriver, driver: Driver) -> None:
    driver.scan()
    node.remove_gpu(0)
    driver.reopen()
    node.fail_call(5, "nvmlDeviceGetUUID", UNKNOWN)
    after = driver.scan()
    assert after[4].uuid == node.uuids[5], "index 4 was another card before the reopening"
    assert after[4].fault is not None


def test_a_gpu_without_an_answer_never_gets_the_identity_of_another(node: SimulatedDriver, driver: Driver) -> None:
    driver.scan()
    node.remove_gpu(0)
    node.fail_call(4, "nvmlDeviceGetHandleByIndex", UNKNOWN)
    after = driver.reopen()
    assert [gpu.uuid for gpu in after] == [*node.uuids[1:4], None, *node.uuids[5:]], "index 3 was GPU 3 before"


@pytest.mark.parametrize("code", some([NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND], every=2))
def test_a_reading_that_is_not_to_be_had_is_absent_and_no_fault(
    node: SimulatedDriver, driver: Driver, code: int
) -> None:
    driver.scan()
    for call in (
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetFieldValues",
    ):
        node.fail_call(0, call, code)
    reading = driver.read(node.uuids[0])
    assert reading.fault is None
    assert reading.ecc is reading.remapped_rows is None


def test_optional_facts_that_are_not_to_be_had_are_absent(node: SimulatedDriver, driver: Driver) -> None:
    for call in (
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetBrand",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetSupportedEventTypes",
    ):
        node.fail_call(0, call, NOT_SUPPORTED)
    gpu = driver.scan()[0]
    assert gpu.fault is None
    assert (gpu.minor, gpu.architecture, gpu.brand, gpu.compute_capability, gpu.mig) == (None, "", "", "", None)
    assert gpu.links == tuple(Link(uuid, None, 0) for uuid in node.uuids[1:])
    assert not gpu.watches_xids


def test_a_reading_that_fails_for_the_device_is_its_fault(node: SimulatedDriver, driver: Driver) -> None:
    driver.scan()
    node.fail_call(0, "nvmlDeviceGetTemperature", UNKNOWN)
    reading = driver.read(node.uuids[0])
    assert reading.fault is not None
    assert (reading.fault.kind, reading.fault.call) == (FaultKind.UNKNOWN, "nvmlDeviceGetTemperature")
    assert reading.ecc is not None, "the rest is read on"


def test_a_driver_that_does_not_start_is_a_null_driver(node: SimulatedDriver, opened: Open) -> None:
    node.set_init_error(9)
    driver = opened(node)
    assert isinstance(driver, NullDriver)
    assert "nvmlInit: Driver Not Loaded" in (driver.info().absent or "")


def test_a_driver_that_does_not_start_again_says_so_and_can_be_opened_later(
    node: SimulatedDriver, driver: Driver
) -> None:
    driver.scan()
    node.set_init_error(18)
    with pytest.raises(DriverError, match="version mismatch"):
        driver.reopen()
    with pytest.raises(DriverError, match="nvmlDeviceGetCount"):
        driver.scan()
    assert driver.read(node.uuids[0]).fault is not None
    node.set_init_error(0)
    assert len(driver.reopen()) == 8


def history(node: SimulatedDriver, driver: Driver) -> Iterator[object]:
    """What the driver says of a node, one thing after another."""
    for happens in (
        lambda: node.set_load(1, GpuLoad(gpu_utilization_percent=87, power_watts=390)),
        lambda: node.add_process(1, 4711, ProcessLoad(memory_mib=2000)),
        lambda: node.lose_gpu(3),
        lambda: node.fail_call(2, "nvmlDeviceGetUUID", UNKNOWN),
        lambda: node.fail_call(1, "nvmlDeviceGetTemperature", UNKNOWN),
        lambda: node.fail_call(0, "*", RESET_REQUIRED),
        lambda: node.recover_gpu(3),
        lambda: node.inject_xid(1, 94),
        lambda: node.set_init_error(18),
        driver.reopen,
        lambda: node.set_init_error(0),
        lambda: node.remove_gpu(0),
        driver.reopen,
        lambda: node.restore_gpu(0),
        driver.reopen,
    ):
        try:
            happens()
            yield driver.scan(), [driver.read(uuid) for uuid in node.uuids], driver.wait_event(0)
        except DriverError as error:
            yield str(error)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler on this machine")
def test_a_nodes_history_is_the_same_by_the_library_and_its_stand_in(tmp_path: Path, opened: Open) -> None:
    """The fast tier tries the rest with the library alone."""
    nodes = [SimulatedDriver.create(tmp_path / kind, "node", "a100-pcie-4", kind=kind) for kind in DriverKind]
    by_library, by_stand_in = (list(history(node, opened(node))) for node in nodes)
    assert by_library == by_stand_in
    assert len(set(map(str, by_library))) > 10, "most of it shows"


# Cards that go and come


def test_a_removed_gpu_is_lost_until_reopening_and_listed_again_once_it_is_back(
    node: SimulatedDriver, driver: Driver
) -> None:
    before = driver.scan()
    node.remove_gpu(2)
    lost = driver.scan()
    assert len(lost) == 8
    assert lost[2].fault is not None
    after = driver.reopen()
    assert [gpu.uuid for gpu in after] == [uuid for index, uuid in enumerate(node.uuids) if index != 2]
    assert all(gpu.fault is None and len(gpu.links) == 6 for gpu in after)
    assert [gpu.index for gpu in after] == list(range(7))
    fault = driver.read(node.uuids[2]).fault
    assert fault is not None
    assert fault.kind is FaultKind.GONE
    node.restore_gpu(2)
    assert len(driver.scan()) == 7
    assert driver.reopen() == before


def test_another_process_sees_which_gpus_answer_and_no_xid_is_missed_meanwhile(
    node: SimulatedDriver, driver: Driver
) -> None:
    driver.scan()
    node.remove_gpu(2)
    node.lose_gpu(5)
    assert driver.wait_event(LONG_MS) == XidEvent(node.uuids[5], 79)
    node.inject_xid(1, 48)
    left = [None if index == 5 else uuid for index, uuid in enumerate(node.uuids) if index != 2]
    assert list(driver.answering_uuids()) == left
    node.inject_xid(1, 79)
    assert [driver.wait_event(LONG_MS) for _ in range(2)] == [XidEvent(node.uuids[1], xid) for xid in (48, 79)]
    node.restore_gpu(2)
    node.recover_gpu(5)
    assert driver.answering_uuids() == node.uuids
    node.set_init_error(UNKNOWN)
    with pytest.raises(DriverError, match="nvmlInit"):
        driver.answering_uuids()


# Events


def test_an_xid_reaches_a_thread_that_waits(node: SimulatedDriver, driver: Driver) -> None:
    driver.scan()
    got: list[XidEvent | None] = []
    started = threading.Event()

    def wait() -> None:
        started.set()
        got.append(driver.wait_event(LONG_MS))

    thread = threading.Thread(target=wait)
    thread.start()
    assert started.wait(10)
    node.inject_xid(4, 94)
    thread.join(30)
    assert got == [XidEvent(node.uuids[4], 94)]


def test_every_xid_is_delivered_once_and_in_order(node: SimulatedDriver, driver: Driver) -> None:
    driver.scan()
    node.inject_xid(0, 13)
    node.inject_xid(7, 79)
    node.inject_xid(0, 94)
    assert [driver.wait_event(LONG_MS) for _ in range(3)] == [
        XidEvent(node.uuids[0], 13),
        XidEvent(node.uuids[7], 79),
        XidEvent(node.uuids[0], 94),
    ]
    assert driver.wait_event(0) is None
    driver.scan()
    assert driver.wait_event(0) is None, "scanning registers no device twice"
    driver.reopen()
    node.inject_xid(1, 48)
    assert driver.wait_event(LONG_MS) == XidEvent(node.uuids[1], 48)
    assert driver.wait_event(0) is None


def test_an_xid_from_before_the_scan_is_not_delivered(create: Create, opened: Open, kind: DriverKind) -> None:
    node = create(kind=kind)
    node.inject_xid(0, 79)
    driver = opened(node)
    driver.scan()
    assert driver.wait_event(0) is None
    node.inject_xid(0, 48)
    assert driver.wait_event(LONG_MS) == XidEvent(node.uuids[0], 48)


def test_two_drivers_of_a_node_both_get_an_xid(node: SimulatedDriver, driver: Driver, opened: Open) -> None:
    other = opened(node)
    driver.scan()
    other.scan()
    node.inject_xid(1, 79)
    assert driver.wait_event(LONG_MS) == other.wait_event(LONG_MS) == XidEvent(node.uuids[1], 79)


def test_more_xids_than_are_kept_are_no_error(create: Create, opened: Open, kind: DriverKind) -> None:
    node = create("t4-4", kind=kind)
    driver = opened(node)
    driver.scan()
    for xid in range(260):
        node.inject_xid(0, xid)
    first = driver.wait_event(LONG_MS)
    assert first == XidEvent(node.uuids[0], 260 - 256)


def test_a_driver_that_can_asks_for_a_reset_after_a_grave_xid(create: Create, opened: Open, kind: DriverKind) -> None:
    node = create("h200-8", kind=kind)
    driver = opened(node)
    driver.scan()
    assert driver.read(node.uuids[0]).recovery_action is RecoveryAction.NONE
    node.inject_xid(0, 94)
    assert driver.read(node.uuids[0]).recovery_action is RecoveryAction.NONE
    node.inject_xid(0, 48)
    assert driver.read(node.uuids[0]).recovery_action is RecoveryAction.GPU_RESET
    node.inject_xid(0, 79)
    assert driver.read(node.uuids[0]).recovery_action is RecoveryAction.NODE_REBOOT
    node.recover_gpu(0)
    assert driver.read(node.uuids[0]).recovery_action is RecoveryAction.NONE


# Lifetime


def test_nodes_in_one_process_do_not_mix(create: Create, opened: Open, kind: DriverKind) -> None:
    t4, h100 = create("t4-4", "one", kind), create("h100-8", "two", kind)
    first, second = opened(t4), opened(h100)
    assert {gpu.name for gpu in first.scan()} == {"Tesla T4"}
    assert {gpu.name for gpu in second.scan()} == {"NVIDIA H100 80GB HBM3"}
    assert not {gpu.uuid for gpu in first.scan()} & {gpu.uuid for gpu in second.scan()}
    t4.lose_gpu(0)
    assert first.scan()[0].fault is not None
    assert all(gpu.fault is None for gpu in second.scan())
    assert second.wait_event(0) is None
    first.close()
    assert len(second.scan()) == 8


def test_a_closed_driver_says_so(node: SimulatedDriver) -> None:
    driver = node.open()
    driver.scan()
    driver.close()
    driver.close()
    with pytest.raises(DriverError, match=r"closed|shut down"):
        driver.scan()
    with pytest.raises(DriverError, match=r"closed|shut down"):
        driver.wait_event(0)
    assert driver.read(node.uuids[0]).fault is not None
    assert driver.info().version == "550.163.01"


def test_reading_while_faults_come_and_go_never_raises(create: Create, opened: Open, kind: DriverKind) -> None:
    node = create("a100-pcie-4", kind=kind)
    driver = opened(node)
    driver.scan()
    stop = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                driver.scan()
                for uuid in node.uuids:
                    driver.read(uuid)
        except BaseException as error:
            errors.append(error)

    def wait() -> None:
        try:
            while not stop.is_set():
                driver.wait_event(20)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=each) for each in (read, read, wait)]
    for thread in threads:
        thread.start()
    for _ in range(5 if IS_LONG else 1):
        node.lose_gpu(3)
        node.recover_gpu(3)
        driver.reopen()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert [gpu.uuid for gpu in driver.scan()] == list(node.uuids)
