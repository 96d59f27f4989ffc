"""Who uses a real GPU, and what `purser agent check` finds; skipped where there is none. No setting is touched."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from purser.agent.checking import CheckState, check_node
from purser.agent.monitoring.reading import processes_of, take_sample, uses_of
from purser.agent.nvml import open_driver
from purser.agent.settings import AgentSettings
from purser.core.kubernetes.quantities import MIB
from purser.core.monitoring.accounts import OwnerKind, account

PROC = Path("/proc")
ALLOCATED_MIB = 512
CLIENT = f"""
import ctypes, sys
cuda, device, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t({ALLOCATED_MIB} << 20)) == 0
print("allocated", flush=True)
sys.stdin.read()
"""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (PROC / "driver/nvidia/version").exists(), reason="no NVIDIA driver on this machine"),
]


@contextmanager
def program_on(uuid: str) -> Iterator[int]:
    """A process with so much of a GPU's memory."""
    command, environment = [sys.executable, "-c", CLIENT], {"CUDA_VISIBLE_DEVICES": uuid}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"allocated\n"
        yield process.pid
        process.kill()


def test_a_program_has_what_it_allocated_and_the_owners_parts_are_the_whole() -> None:
    driver = open_driver()
    try:
        gpu = next((each for each in driver.scan() if each.uuid and not each.is_partitioned), None)
        if gpu is None or gpu.uuid is None:
            pytest.skip("every GPU is in MIG mode")
        with program_on(gpu.uuid) as pid:
            sample = take_sample(driver, gpu.uuid, PROC, 0.0)
        pids = {each.pid for each in processes_of(sample.telemetry)}
        if pid not in pids:
            pytest.skip("the driver lists processes by pids of another PID namespace, or none: run in the host's")
        uses = uses_of(sample, {})
        [own] = [each for each in uses if each.pid == pid]
        assert own.owner is None
        assert own.memory is not None
        assert ALLOCATED_MIB * MIB <= own.memory < 2 * ALLOCATED_MIB * MIB + 1024 * MIB
        memory = sample.telemetry.memory
        assert memory is not None
        parts = account(gpu.uuid, memory, uses).memory
        assert sum(parts.values()) == memory.total
        assert parts[OwnerKind.FOREIGN] >= ALLOCATED_MIB * MIB
        assert parts[OwnerKind.PODS] == 0
    finally:
        driver.close()


async def test_the_check_finds_the_driver_and_every_gpu() -> None:
    found = await check_node(AgentSettings(node_name="n", host_root=Path("/")), open_driver)
    states = {each.check: each.state for each in found}
    for what in ("kernel module", "driver library"):
        assert states[what] is CheckState.OK, found
    assert not [each for each in found if each.check.startswith("GPU") and each.state is CheckState.FAILED]
