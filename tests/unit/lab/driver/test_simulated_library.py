"""The C library itself: what only raw calls show, builds of other shapes, and its memory."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from purser.agent.nvml import LibraryDriver
from purser.agent.nvml.calls import load_nvml
from purser.core.health.signs import FaultKind
from purser.core.model import PcieLevel
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.compile import SOURCE_DIR, compiled_library, find_compiler

Create = Callable[..., SimulatedDriver]

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(find_compiler() is None, reason="no C compiler on this machine"),
]


@pytest.fixture
def node(create: Create) -> SimulatedDriver:
    return create(kind=DriverKind.LIBRARY)


@pytest.fixture
def nvml(node: SimulatedDriver) -> Any:
    """pynvml on the node's library, initialised."""
    module = load_nvml(str(node.library))
    module.nvmlInit()
    return module


@pytest.fixture(scope="module")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a driver that lacks what came later."""
    library = compiled_library(("-O0", "-DPURSER_OLD_DRIVER"), cache=tmp_path_factory.mktemp("cache"))
    assert library is not None
    return library


def test_a_gpu_is_found_by_uuid_and_by_pci_address(node: SimulatedDriver, nvml: Any) -> None:
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(node.uuids[5])
    by_address = nvml.nvmlDeviceGetHandleByPciBusId("00000000:90:00.0")
    assert nvml.nvmlDeviceGetIndex(by_uuid) == nvml.nvmlDeviceGetIndex(by_address) == 5
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID("GPU-unknown")
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByPciBusId("0000:01:00.0")
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByPciBusId("nonsense")


def test_a_lost_gpu_spoils_the_search_by_uuid_as_in_nvml(node: SimulatedDriver, nvml: Any) -> None:
    node.lose_gpu(2)
    assert nvml.nvmlDeviceGetHandleByUUID(node.uuids[1])
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByUUID(node.uuids[3])


def test_every_call_on_a_lost_gpu_says_that_it_is_lost(node: SimulatedDriver, nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(2)
    node.lose_gpu(2)
    calls = [nvml.nvmlDeviceGetName, nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetMigMode]
    for call in calls:
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call(handle)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetTopologyCommonAncestor(nvml.nvmlDeviceGetHandleByIndex(0), handle)


def test_the_rest_of_what_is_exported_answers(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    info = nvml.nvmlDeviceGetPciInfo(handle)
    assert (info.busId, info.busIdLegacy) == ("00000000:07:00.0", "0000:07:00.0")
    assert (info.pciDeviceId, info.pciSubSystemId) == (0x20B010DE, 0x134F10DE)
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(handle) == 7
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle) == 400_000
    assert nvml.nvmlDeviceGetPersistenceMode(handle) == 1
    assert nvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert nvml.nvmlSystemGetNVMLVersion() == "12.550.163.01"
    assert nvml.nvmlErrorString(nvml.NVML_ERROR_GPU_IS_LOST) == "GPU is lost"
    assert nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, 1).busId == "00000000:C5:00.0"
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, 1) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH


def test_what_is_not_simulated_is_not_found(nvml: Any) -> None:
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetSerial(nvml.nvmlDeviceGetHandleByIndex(0))


def test_nothing_answers_before_init_and_after_the_last_shutdown(nvml: Any) -> None:
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 8
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlInit()


def test_a_handle_of_another_library_is_refused(nvml: Any, create: Create) -> None:
    other = load_nvml(str(create(node="node-2", kind=DriverKind.LIBRARY).library))
    other.nvmlInit()
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetName(other.nvmlDeviceGetHandleByIndex(0))


def test_a_bad_state_file_leaves_the_last_good_one_in_force(
    node: SimulatedDriver, nvml: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    (node.folder / "node.state").write_text("gpu 0\nnonsense\n")
    assert nvml.nvmlDeviceGetCount() == 8
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) == "NVIDIA A100-SXM4-40GB"
    assert "bad line: nonsense" in capfd.readouterr().err


def test_a_node_without_its_state_file_does_not_start(node: SimulatedDriver) -> None:
    (node.folder / "node.state").unlink()
    assert "nvmlInit: Unknown Error" in (node.open().info().absent or "")


@pytest.mark.gate
def test_an_old_driver_lacks_functions_and_works_on(node: SimulatedDriver, old_library: Path) -> None:
    shutil.copyfile(old_library, node.library)
    node.set_memory_used(0, 1000)
    driver = node.open()
    assert isinstance(driver, LibraryDriver)
    gpu = driver.scan()[0]
    assert gpu.fault is None
    assert (gpu.name, gpu.memory_mib, gpu.architecture) == ("NVIDIA A100-SXM4-40GB", 40960, "")
    assert {link.pcie for link in gpu.links} == {PcieLevel.MULTI_SWITCH, PcieLevel.CROSS_CPU}
    assert {link.nvlinks for link in gpu.links} == {0}, "what is behind a switch cannot be known"
    reading = driver.read(node.uuids[0])
    assert reading.fault is None
    assert reading.remapped_rows is reading.recovery_action is None
    told = driver.telemetry(node.uuids[0])
    assert told.fields["DCGM_FI_DEV_FB_USED"] == 1583, "the old call counts what the driver reserves"
    assert "DCGM_FI_DEV_FB_RESERVED" not in told.fields
    assert told.processes is None
    node.lose_gpu(0)
    fault = driver.read(node.uuids[0]).fault
    assert fault is not None
    assert fault.kind is FaultKind.LOST
    assert driver.wait_event(1000) is not None
    driver.close()


def test_an_old_driver_still_counts_links_between_gpus(create: Create, old_library: Path) -> None:
    node = create("a100-pcie-4", kind=DriverKind.LIBRARY)
    shutil.copyfile(old_library, node.library)
    driver = node.open()
    assert [link.nvlinks for link in driver.scan()[0].links] == [12, 0, 0]
    driver.close()


_EXERCISE = """
import sys
from pathlib import Path
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.node_mig import create_mig, set_mig
from purser.lab.driver.parts import ProcessLoad
from tests.unit.lab.driver.nvml_on_nodes import opened_nvml
node = SimulatedDriver(Path(sys.argv[1]))
driver = node.open()
assert len(driver.scan()) == 8
for round in range(3):
    node.add_process(1, 100 + round, ProcessLoad(memory_mib=10))
    node.lose_gpu(3)
    driver.scan()
    assert driver.wait_event(1000).xid == 79
    assert driver.wait_event(1) is None
    [driver.read(uuid) for uuid in node.uuids]
    node.recover_gpu(3)
    node.remove_gpu(2)
    assert len(driver.reopen()) == 7
    node.restore_gpu(2)
    assert len(driver.reopen()) == 8
    set_mig(node.folder, 5, enabled=True)
    uuids = [create_mig(node.folder, 5, "1g.5gb") for _ in range(7)]
    node.add_process(uuids[0], 99, ProcessLoad(memory_mib=10))
    assert len(driver.scan()[5].migs) == 7
    node.recover_gpu(5)
    set_mig(node.folder, 5, enabled=False)
    node.remap_rows(0, pending=True)
nvml = opened_nvml(node, node.kind)
gpu = nvml.nvmlDeviceGetHandleByIndex(4)
nvml.nvmlDeviceSetMigMode(gpu, 1)
for _ in range(2):
    made = [nvml.nvmlDeviceCreateGpuInstance(gpu, 14) for _ in range(3)]
    computes = [nvml.nvmlGpuInstanceCreateComputeInstance(each, 0) for each in made]
    [nvml.nvmlComputeInstanceDestroy(each) for each in computes]
    [nvml.nvmlGpuInstanceDestroy(each) for each in made]
nvml.nvmlDeviceGetFieldValues(gpu, list(range(308)))
(node.folder / "node.mig").write_text("mode 99 1 1\\n")
driver.scan()
(node.folder / "node.state").write_text("gpu 0\\nnvlink 99 1 1 0 0 0\\n")
driver.scan()
driver.close()
"""


@pytest.mark.gate
def test_the_sanitizers_find_nothing(node: SimulatedDriver, tmp_path: Path) -> None:
    flags = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    library = compiled_library(flags, cache=tmp_path / "cache")
    if library is None:
        pytest.skip("this compiler has no sanitizers")
    shutil.copyfile(library, node.library)
    runtime = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # Leaks are left out: the interpreter itself leaves memory behind at exit.
    environment = {
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": f"{SOURCE_DIR.parents[3]}:{SOURCE_DIR.parents[4]}",
    }
    command = [sys.executable, "-c", _EXERCISE, str(node.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "ERROR: AddressSanitizer" not in done.stderr
