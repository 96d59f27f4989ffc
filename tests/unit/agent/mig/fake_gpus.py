"""GPUs that can MIG: as the worker's seam sees them, and as functions of NVML."""

import ctypes
from types import SimpleNamespace
from typing import Any

import msgspec

from purser.agent.mig import HardwareError, Layout, MigGpu
from purser.agent.mig.hardware import OfferedProfile

A100 = "0x20B010DE"


class Gpus:
    """A `MigHardware` in memory that may fail at any call."""

    def __init__(self, *layouts: Layout, device_id: str = A100) -> None:
        self.now = [
            MigGpu(index=index, device_id=device_id, layout=layout, uuids=(f"GPU-{index}",))
            for index, layout in enumerate(layouts)
        ]
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}
        """By the beginning of a call: how often it fails."""
        self.closed = 0
        self.offered: dict[str, OfferedProfile] = {}
        """Profiles that each GPU offers; empty: the driver does not say."""

    def offers(self, index: int) -> dict[str, OfferedProfile]:
        return self.offered

    def gpus(self) -> tuple[MigGpu, ...]:
        return tuple(self.now)

    def set_mode(self, index: int, enabled: bool) -> None:
        self._call(f"mode {index} {enabled}")
        self._become(index, Layout(enabled))

    def set_devices(self, index: int, profiles: tuple[str, ...]) -> None:
        if not self.now[index].layout.enabled:
            raise HardwareError(f"GPU {index} is not in MIG mode")
        self._become(index, Layout(True))  # what was there goes first
        self._call(f"devices {index} {','.join(profiles)}")
        self._become(index, Layout(True, tuple(sorted(profiles))))

    def close(self) -> None:
        self.closed += 1

    def layouts(self) -> list[Layout]:
        return [gpu.layout for gpu in self.now]

    def _become(self, index: int, layout: Layout) -> None:
        self.now[index] = msgspec.structs.replace(self.now[index], layout=layout)

    def _call(self, what: str) -> None:
        self.calls.append(what)
        for beginning, times in self.fails.items():
            if what.startswith(beginning) and times:
                self.fails[beginning] = times - 1
                raise HardwareError(f"{what} failed")


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """NVML's functions for one A100 with 40 GB: seven slices, of which each instance takes those beside one another.

    Placement is the GPU's own: a 3g instance begins at slice 0 or 4, a 2g at 0, 2 or 4, a 1g anywhere below 7.
    """

    NVMLError = NvmlError
    NVML_SUCCESS, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_INSUFFICIENT_RESOURCES, NVML_ERROR_IN_USE = 0, 3, 23, 19
    NVML_ERROR_NOT_FOUND, NVML_ERROR_NO_PERMISSION, NVML_ERROR_FUNCTION_NOT_FOUND = 6, 4, 13
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 15, 16
    NVML_GPU_INSTANCE_PROFILE_COUNT, NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 4, 4
    NVML_GPU_INSTANCE_PROFILE_1_SLICE, NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 = 0, 3
    c_nvmlGpuInstance_t = c_nvmlComputeInstance_t = ctypes.c_void_p
    PROFILES = (
        ("MIG 1g.5gb", 19, 1, 7, 4864, range(7)),
        ("MIG 2g.10gb", 14, 2, 3, 9856, (0, 2, 4)),
        ("MIG 3g.20gb", 9, 3, 2, 19968, (0, 4)),
        ("MIG 1g.5gb+me", 20, 1, 1, 4864, range(7)),
    )

    def __init__(self, *, tells_names: bool = True, needs_reboot: bool = False, capable: bool = True) -> None:
        self.tells_names, self.needs_reboot, self.capable = tells_names, needs_reboot, capable
        self.mode = self.pending = 0
        self.instances: dict[int, tuple[int, int, set[int]]] = {}
        """By handle: profile, slices, compute instances."""
        self.places: dict[int, range] = {}
        self.dies_after_instance = False
        self.hides_uuids = False
        self.started = 0
        self._last = 100

    def nvmlInit(self) -> None:
        self.started += 1

    def nvmlShutdown(self) -> None:
        self.started -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return 1

    def nvmlDeviceGetUUID(self, device: int) -> str:
        if self.hides_uuids:
            raise NvmlError(self.NVML_ERROR_NOT_SUPPORTED)
        return "GPU-a" if device == 1 else f"MIG-{device}"

    def nvmlDeviceGetMaxMigDeviceCount(self, device: int) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: int, index: int) -> int:
        """With gaps, as where instances were removed."""
        found = sorted(self.instances)
        if index % 2 or index // 2 >= len(found):
            raise NvmlError(self.NVML_ERROR_NOT_FOUND)
        return found[index // 2]

    def nvmlDeviceGetPciInfo(self, device: int) -> Any:
        return SimpleNamespace(pciDeviceId=0x20B010DE)

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(total=40960 * (1 << 20))

    def nvmlDeviceGetMigMode(self, device: int) -> list[int]:
        if not self.capable:
            raise NvmlError(self.NVML_ERROR_NOT_SUPPORTED)
        return [self.mode, self.pending]

    def nvmlDeviceSetMigMode(self, device: int, mode: int) -> int:
        self.pending = mode
        if not self.needs_reboot:
            self.mode = mode
        return self.NVML_SUCCESS

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device: int, number: int, version: int = 2) -> Any:
        name, profile_id, slices, most, memory, _ = self.PROFILES[number]
        if version == 2 and not self.tells_names:
            raise NvmlError(self.NVML_ERROR_NOT_SUPPORTED)
        told = {"name": name} if version == 2 else {}
        return SimpleNamespace(id=profile_id, sliceCount=slices, instanceCount=most, memorySizeMB=memory, **told)

    def nvmlDeviceGetGpuInstances(self, device: int, profile_id: int, handles: Any, count: Any) -> None:
        self._fill([h for h, (profile, _, _) in self.instances.items() if profile == profile_id], handles, count)

    def nvmlDeviceCreateGpuInstance(self, device: int, profile_id: int) -> int:
        assert self.mode
        _, _, slices, _, _, starts = next(each for each in self.PROFILES if each[1] == profile_id)
        taken = {each for place in self.places.values() for each in place}
        for start in starts:
            place = range(start, start + slices + (slices == 3))  # 3g.20gb takes the memory of four
            if not taken & set(place):
                self._last += 1
                self.instances[self._last] = (profile_id, slices, set())
                self.places[self._last] = place
                return self._last
        raise NvmlError(self.NVML_ERROR_INSUFFICIENT_RESOURCES)

    def nvmlGpuInstanceDestroy(self, instance: int) -> None:
        if self.instances[instance][2]:
            raise NvmlError(self.NVML_ERROR_IN_USE)
        del self.instances[instance], self.places[instance]

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, instance: int, number: int, engine: int, version: int
    ) -> Any:
        slices = number + 1
        if slices > self.instances[instance][1]:
            raise NvmlError(self.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(id=number, sliceCount=slices, instanceCount=self.instances[instance][1] // slices)

    def nvmlGpuInstanceGetComputeInstances(self, instance: int, profile_id: int, handles: Any, count: Any) -> None:
        owned = self.instances[instance][2]
        self._fill([each for each in owned if each % 10 == profile_id], handles, count)

    def nvmlGpuInstanceCreateComputeInstance(self, instance: int, profile_id: int) -> int:
        if self.dies_after_instance:
            raise SystemExit
        handle = instance * 10 + profile_id
        self.instances[instance][2].add(handle)
        return handle

    def nvmlComputeInstanceDestroy(self, compute: int) -> None:
        self.instances[compute // 10][2].remove(compute)

    def _fill(self, found: list[int], handles: Any, count: Any) -> None:
        for place, handle in enumerate(found):
            handles[place] = handle
        count._obj.value = len(found)
