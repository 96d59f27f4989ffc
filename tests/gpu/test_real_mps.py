"""MPS on a real GPU, by the agent's own daemon; skipped where there is none. No setting of the card is touched."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from purser.agent.inventory.driver_roots import DriverPlace
from purser.agent.inventory.mps_capability import mps_obstacle
from purser.agent.mps.access import client_access
from purser.agent.mps.control import MpsControl
from purser.agent.mps.daemon import MpsDaemon, MpsHooks, MpsTiming
from purser.agent.mps.folders import folders_of
from purser.agent.mps.processes import find_marked
from purser.agent.mps.programs import MARK, MpsError, find_programs
from purser.agent.nvml import open_driver
from purser.agent.settings import AgentSettings
from purser.core.model import ContainerGrant, DeviceShare
from purser.core.pod.manifest import ContainerKind
from purser.kube.clock import SystemClock

PLACE = DriverPlace(on_host=True, root="/", dev_root="/")
SETTINGS = AgentSettings(node_name="n", host_root=Path("/"))
GRANTED_MIB = 2048
OUT_OF_MEMORY = 2
CLIENT = """
import ctypes, sys
cuda, device, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for mib in (256, 4096):
    print(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20)), flush=True)
sys.stdin.read()
"""


def has_programs() -> bool:
    try:
        find_programs(SETTINGS, PLACE)
    except MpsError:
        return False
    return Path("/proc/driver/nvidia/version").exists()


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_programs(), reason="no NVIDIA driver with MPS on this machine"),
]


async def test_a_client_is_held_to_its_share_and_nothing_is_left() -> None:
    driver = open_driver()
    try:
        gpu, cuda_version = driver.scan()[0], driver.info().cuda_version
    finally:
        driver.close()
    if gpu.uuid is None or (why := mps_obstacle(gpu, cuda_version)):
        pytest.skip(why)
    control = MpsControl(SETTINGS, lambda: find_programs(SETTINGS, PLACE))
    daemon = MpsDaemon(gpu.uuid, control, MpsHooks(), False, MpsTiming(), SystemClock())
    running = asyncio.create_task(daemon.run())
    try:
        async with asyncio.timeout(60):
            while not daemon.ready:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        part = ContainerGrant("main", ContainerKind.APP, (DeviceShare(gpu.uuid, GRANTED_MIB, 50),))
        variables = {
            **client_access(part, limited=True).environment,
            "CUDA_MPS_PIPE_DIRECTORY": str(folders_of(gpu.uuid).pipe),
        }
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CLIENT),
            env={**os.environ, **variables},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdout is not None
        async with asyncio.timeout(60):
            said = [int(await client.stdout.readline()) for _ in range(2)]
        assert said == [0, OUT_OF_MEMORY]
        server = (await control.ask(gpu.uuid, "get_server_list")).strip()
        assert str(client.pid) in (await control.ask(gpu.uuid, f"get_client_list {server}")).split()
        client.kill()
        await client.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await daemon.quit()
    assert find_marked(f"{MARK}={folders_of(gpu.uuid).pipe}") == ()
