"""MIG on a simulated node: the same for the C library behind pynvml and for its stand-in, and legal on every GPU."""

import ctypes
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.tiers import IS_LONG, some
from tests.unit.lab.driver.nvml_on_nodes import OpenNvml, told

from purser.core.kubernetes.quantities import MIB
from purser.core.mig import MIG_KINDS, MigGeometry, MigGeometryError, MigKind, MigPlacement
from purser.lab.driver import DriverKind, SimulatedDriver
from purser.lab.driver.compile import find_compiler
from purser.lab.driver.mig import MigRefusedError
from purser.lab.driver.node_mig import create_mig, destroy_mig, mig_states, set_mig
from purser.lab.driver.parts import ProcessLoad

pytestmark = pytest.mark.processes

Create = Callable[..., SimulatedDriver]

MODELS = {
    "a30-24gb": "A30",
    "a100-sxm4-40gb": "A100-40GB",
    "a100-sxm4-80gb": "A100-80GB",
    "h100-sxm5-80gb": "H100-80GB",
    "h100-nvl-94gb": "H100-94GB",
    "gh200-96gb": "H100-96GB",
    "h200-sxm5-141gb": "H200",
    "b200-sxm6-180gb": "B200",
}
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler on this machine")


class Cut(NamedTuple):
    """A node, its driver's functions, and one GPU in MIG mode."""

    node: SimulatedDriver
    nvml: Any
    gpu: Any

    def create(self, profile_id: int) -> Any:
        return self.nvml.nvmlDeviceCreateGpuInstance(self.gpu, profile_id)

    def place(self, instance: Any) -> tuple[int, int]:
        info = self.nvml.nvmlGpuInstanceGetInfo(instance)
        return info.id, info.placement.start

    def code(self, call: str, *arguments: object) -> str:
        return str(told(self.nvml, call, *arguments))


@pytest.fixture
def cut(create: Create, kind: DriverKind, open_nvml: OpenNvml) -> Cut:
    return cut_of(create("a100-40gb-8", kind=kind), kind, open_nvml)


def cut_of(node: SimulatedDriver, kind: DriverKind, open_nvml: OpenNvml) -> Cut:
    set_mig(node.folder, 0, enabled=True)
    nvml = open_nvml(node, kind)
    return Cut(node, nvml, nvml.nvmlDeviceGetHandleByIndex(0))


def profile_of(folder: Path, model: str) -> Path:
    """A node with one GPU of a model."""
    path = folder / f"{model}.yaml"
    gpus = [{"model": model, "pci": "0000:01:00.0"}]
    content = {"description": model, "driver_version": "580.95.05", "cuda_version": "13.0", "gpus": gpus}
    path.write_text(yaml.safe_dump(content))
    return path


def placements(nvml: Any, call: str, owner: Any, profile_id: int) -> list[tuple[int, int]]:
    count = ctypes.c_uint(0)
    getattr(nvml, call)(owner, profile_id, None, ctypes.byref(count))
    found = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    getattr(nvml, call)(owner, profile_id, found, ctypes.byref(count))
    return [(each.start, each.size) for each in found]


def everything(cut: Cut) -> dict[tuple[object, ...], Any]:
    """All that a GPU offers, with an instance of each profile in its turn."""
    nvml, gpu = cut.nvml, cut.gpu
    told_of: dict[tuple[object, ...], Any] = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT + 1):
        for version in (1, 2):
            found = told(nvml, "nvmlDeviceGetGpuInstanceProfileInfo", gpu, number, version)
            told_of["profile", number, version] = found
        if isinstance(found, str):
            continue
        id_ = found["id"]
        told_of["by id", id_] = told(nvml, "nvmlDeviceGetGpuInstanceProfileInfoById", gpu, id_)
        told_of["places", id_] = placements(nvml, "nvmlDeviceGetGpuInstancePossiblePlacements", gpu, id_)
        told_of["room", id_] = told(nvml, "nvmlDeviceGetGpuInstanceRemainingCapacity", gpu, id_)
        instance = cut.create(id_)
        told_of["instance", id_] = told(nvml, "nvmlGpuInstanceGetInfo", instance)
        for number_in_it in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT + 1):
            told_of.update(compute_of(nvml, id_, instance, number_in_it))
        told_of["in use", id_] = told(nvml, "nvmlGpuInstanceDestroy", instance)
        for index in range(8):
            device = told(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
            if isinstance(device, str):
                told_of["device", id_, index] = device
                break
            told_of.update(device_of(nvml, id_, index, nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)))
        for one in range(8):
            if not isinstance(told(nvml, "nvmlGpuInstanceGetComputeInstanceById", instance, one), str):
                nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(instance, one))
        nvml.nvmlGpuInstanceDestroy(instance)
    return told_of


def compute_of(nvml: Any, id_: int, instance: Any, number: int) -> dict[tuple[object, ...], Any]:
    """What NVML says of a compute profile, and what becomes of as many as fit."""
    call = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
    told_of = {("compute", id_, number, each): told(nvml, call, instance, number, 0, each) for each in (1, 2)}
    if isinstance(told_of["compute", id_, number, 2], str):
        return told_of
    call = "nvmlGpuInstanceGetComputeInstancePossiblePlacements"
    told_of["compute places", id_, number] = placements(nvml, call, instance, number)
    room = nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, number)
    told_of["compute room", id_, number] = room
    for _ in range(min(room, 2)):
        made = nvml.nvmlGpuInstanceCreateComputeInstance(instance, number)
        info = told(nvml, "nvmlComputeInstanceGetInfo_v2", made)
        told_of["compute instance", id_, number, info["id"]] = info
    return told_of


def device_of(nvml: Any, id_: int, index: int, device: Any) -> dict[tuple[object, ...], Any]:
    calls = ("UUID", "Name", "GpuInstanceId", "ComputeInstanceId", "Attributes_v2", "UtilizationRates", "MinorNumber")
    return {(id_, index, call): told(nvml, f"nvmlDeviceGet{call}", device) for call in calls}


def test_profiles_are_told_with_mig_off_as_well(cut: Cut) -> None:
    """As a driver of R580 does of an H200; what is made of them needs MIG."""
    call, off = "nvmlDeviceGetGpuInstanceProfileInfo", cut.nvml.nvmlDeviceGetHandleByIndex(1)
    for number in range(cut.nvml.NVML_GPU_INSTANCE_PROFILE_COUNT + 1):
        for version in (1, 2):
            assert told(cut.nvml, call, off, number, version) == told(cut.nvml, call, cut.gpu, number, version)
    assert isinstance(told(cut.nvml, "nvmlDeviceCreateGpuInstance", off, 19), str)


@needs_compiler
@pytest.mark.parametrize("model", some(list(MODELS), every=4))
def test_the_library_and_its_stand_in_offer_the_same(
    create: Create, tmp_path: Path, open_nvml: OpenNvml, model: str
) -> None:
    node = create(profile_of(tmp_path, model), kind=DriverKind.LIBRARY)
    library, stand_in = (everything(cut_of(node, kind, open_nvml)) for kind in DriverKind)
    assert library == stand_in
    assert len(library) > 60


@needs_compiler
@pytest.mark.parametrize("model", some(list(MODELS), every=4))
def test_a_gpu_offers_what_the_table_of_its_kind_says(
    create: Create, tmp_path: Path, open_nvml: OpenNvml, model: str
) -> None:
    node = create(profile_of(tmp_path, model), kind=DriverKind.LIBRARY)
    nvml, gpu = cut_of(node, DriverKind.LIBRARY, open_nvml)[1:]
    table = MIG_KINDS[MODELS[model]]
    infos = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = told(nvml, "nvmlDeviceGetGpuInstanceProfileInfo", gpu, number)
        if not isinstance(info, str):
            infos[info["name"].removeprefix("MIG ")] = info
    assert infos.keys() == {profile.name for profile in table.profiles}
    for profile in table.profiles:
        info = infos[profile.name]
        assert (info["sliceCount"], info["memorySizeMB"]) == (profile.compute_slices, profile.memory_mib)
        assert info["multiprocessorCount"] == profile.multiprocessors
        found = placements(nvml, "nvmlDeviceGetGpuInstancePossiblePlacements", gpu, info["id"])
        assert found == [(start, profile.memory_slices) for start in profile.starts]


def ids(cut: Cut, table: MigKind) -> dict[str, int]:
    """What the driver calls each profile."""
    call = cut.nvml.nvmlDeviceGetGpuInstanceProfileInfo
    return {profile.name: call(cut.gpu, profile.number).id for profile in table.profiles}


@pytest.mark.parametrize("model", some(list(MODELS), every=4))
def test_only_legal_placements_are_ever_made(
    create: Create, tmp_path: Path, kind: DriverKind, open_nvml: OpenNvml, model: str
) -> None:
    """A walk of creations anywhere and destructions, beside the geometry that everything else of Purser decides by."""
    cut = cut_of(create(profile_of(tmp_path, model), kind=kind), kind, open_nvml)
    table, draw = MIG_KINDS[MODELS[model]], random.Random(model)
    numbers, geometry = ids(cut, table), MigGeometry(table)
    made: dict[MigPlacement, Any] = {}
    for _ in range(300 if IS_LONG else 40):
        if made and draw.random() < 0.4:
            gone = draw.choice(sorted(made))
            cut.nvml.nvmlGpuInstanceDestroy(made.pop(gone))
            geometry = geometry.destroyed(gone)
            continue
        profile = draw.choice(table.profiles)
        wanted = MigPlacement(profile.name, draw.choice(profile.starts))
        placement = cut.nvml.c_nvmlGpuInstancePlacement_t(wanted.start, profile.memory_slices)
        arguments = (cut.gpu, numbers[profile.name], ctypes.byref(placement))
        try:
            geometry = geometry.created(wanted)
        except MigGeometryError:
            assert cut.code("nvmlDeviceCreateGpuInstanceWithPlacement", *arguments) == "error 23"
        else:
            made[wanted] = cut.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(*arguments)
            assert cut.place(made[wanted])[1] == wanted.start
    for profile in table.profiles:
        room = cut.nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(cut.gpu, numbers[profile.name])
        assert bool(room) == any(not table.bits(profile, start) & geometry.mask for start in profile.starts)


ID_1G, ID_1G_MEDIA, ID_2G, ID_3G, ID_4G, ID_7G = 19, 20, 14, 9, 5, 0


@pytest.mark.parametrize(
    ("profiles", "places"),
    [
        ((ID_3G, ID_2G, ID_1G), [(2, 4), (3, 0), (9, 2)]),
        ((ID_1G,) * 7, [(13, 6), (11, 4), (12, 5), (7, 0), (8, 1), (9, 2), (10, 3)]),
        ((ID_7G,), [(0, 0)]),
    ],
)
def test_the_driver_places_instances_as_nvidias_guide_shows(
    cut: Cut, profiles: tuple[int, ...], places: list[tuple[int, int]]
) -> None:
    assert [cut.place(cut.create(each)) for each in profiles] == places
    assert cut.code("nvmlDeviceCreateGpuInstance", cut.gpu, ID_4G) == "error 23"


def test_what_can_never_be_is_an_invalid_argument(cut: Cut) -> None:
    for start, size in ((1, 4), (0, 3)):
        placement = ctypes.byref(cut.nvml.c_nvmlGpuInstancePlacement_t(start, size))
        code = cut.code("nvmlDeviceCreateGpuInstanceWithPlacement", cut.gpu, ID_3G, placement)
        assert code == "error 2"
    assert cut.code("nvmlDeviceCreateGpuInstance", cut.gpu, 99) == "error 2"
    other = cut.nvml.nvmlDeviceGetHandleByIndex(1)
    assert cut.code("nvmlDeviceCreateGpuInstance", other, ID_1G) == "error 3", "it is not in MIG mode"


def test_there_is_one_media_extension(cut: Cut) -> None:
    cut.create(ID_1G_MEDIA)
    assert cut.code("nvmlDeviceCreateGpuInstance", cut.gpu, ID_1G_MEDIA) == "error 23"
    assert cut.nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(cut.gpu, ID_1G) == 6


def test_a_mig_device_is_a_device_of_its_own(cut: Cut) -> None:
    node, nvml = cut.node, cut.nvml
    uuid = create_mig(node.folder, 0, "3g.20gb")
    part = create_mig(node.folder, 0, "2g.10gb", slices=1)
    device = nvml.nvmlDeviceGetHandleByUUID(uuid)
    assert nvml.nvmlDeviceGetUUID(device) == uuid
    assert nvml.nvmlDeviceGetName(device) == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByUUID(part)) == "NVIDIA A100-SXM4-40GB MIG 1c.2g.10gb"
    assert nvml.nvmlDeviceIsMigDeviceHandle(device).value == 1
    assert nvml.nvmlDeviceIsMigDeviceHandle(cut.gpu).value == 0
    assert (nvml.nvmlDeviceGetGpuInstanceId(device), nvml.nvmlDeviceGetComputeInstanceId(device)) == (2, 0)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    assert nvml.nvmlDeviceGetUUID(parent) == node.uuids[0]
    node.add_process(uuid, 7, ProcessLoad(memory_mib=1000))
    node.add_process(part, 8, ProcessLoad(memory_mib=100, graphics=True))
    for version in (None, nvml.nvmlMemory_v2):
        memory = nvml.nvmlDeviceGetMemoryInfo(device, version)
        assert (memory.total, memory.used, memory.free) == (19968 * MIB, 1000 * MIB, 18968 * MIB)
    [inside] = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device)
    assert (inside.pid, inside.gpuInstanceId, inside.computeInstanceId) == (7, 2, 0)
    assert [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses_v3(cut.gpu)] == [7]
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses_v3(device) == []
    assert cut.code("nvmlDeviceGetPowerUsage", device) == "error 2", "that is the whole GPU's"
    with pytest.raises(ValueError, match="is in MIG mode: use one of its MIG devices"):
        node.add_process(0, 9, ProcessLoad(memory_mib=1))
    with pytest.raises(ValueError, match="has only 9756 MiB free"):
        node.add_process(part, 9, ProcessLoad(memory_mib=9757))


def test_nothing_is_destroyed_that_is_in_use(cut: Cut) -> None:
    node, nvml = cut.node, cut.nvml
    uuid = create_mig(node.folder, 0, "1g.5gb")
    instance = nvml.nvmlDeviceGetGpuInstanceById(cut.gpu, 13)
    compute = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    device = nvml.nvmlDeviceGetHandleByUUID(uuid)
    node.add_process(uuid, 7, ProcessLoad(memory_mib=10))
    assert cut.code("nvmlGpuInstanceDestroy", instance) == cut.code("nvmlComputeInstanceDestroy", compute) == "error 19"
    with pytest.raises(MigRefusedError, match="is in use by a process"):
        destroy_mig(node.folder, uuid)
    node.remove_process(0, 7)
    nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    for call, handle in (("nvmlDeviceGetUUID", device), ("nvmlGpuInstanceGetInfo", instance)):
        assert cut.code(call, handle) == "error 6"
    assert cut.code("nvmlDeviceGetHandleByUUID", uuid) == "error 6"
    assert mig_states(node.folder)[0].instances == {}


def test_the_mode_of_a_busy_gpu_waits_for_a_reset(cut: Cut) -> None:
    node, nvml = cut.node, cut.nvml
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    node.add_process(1, 7, ProcessLoad(memory_mib=10))
    assert nvml.nvmlDeviceSetMigMode(gpu, 1) == nvml.NVML_ERROR_IN_USE
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
    node.recover_gpu(1)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    create_mig(node.folder, 1, "1g.5gb")
    assert nvml.nvmlDeviceSetMigMode(gpu, 0) == nvml.NVML_ERROR_IN_USE
    node.recover_gpu(1)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    assert mig_states(node.folder)[1].instances == {}


def test_instances_outlive_who_made_them_and_are_everybodys(cut: Cut, open_nvml: OpenNvml) -> None:
    instance = cut.create(ID_2G)
    cut.nvml.nvmlGpuInstanceCreateComputeInstance(instance, 1)
    cut.nvml.nvmlShutdown()
    others = [open_nvml(cut.node, each) for each in {cut.node.kind, DriverKind.PYTHON}]
    devices = [each.nvmlDeviceGetMigDeviceHandleByIndex(each.nvmlDeviceGetHandleByIndex(0), 0) for each in others]
    for nvml, device in zip(others, devices, strict=True):
        assert nvml.nvmlDeviceGetName(device).endswith("MIG 2g.10gb")
    uuids = {nvml.nvmlDeviceGetUUID(device) for nvml, device in zip(others, devices, strict=True)}
    destroy_mig(cut.node.folder, uuids.pop())
    assert not uuids
    for nvml, device in zip(others, devices, strict=True):
        assert told(nvml, "nvmlDeviceGetUUID", device) == "error 6"


def test_a_lost_gpu_takes_its_mig_devices_along(cut: Cut) -> None:
    device = cut.nvml.nvmlDeviceGetHandleByUUID(create_mig(cut.node.folder, 0, "7g.40gb"))
    cut.node.lose_gpu(0)
    assert cut.code("nvmlDeviceGetUUID", device) == "error 15"
    assert cut.code("nvmlDeviceCreateGpuInstance", cut.gpu, ID_1G) == "error 15"


def test_an_xid_names_the_mig_device_that_it_concerns(cut: Cut) -> None:
    uuid = create_mig(cut.node.folder, 0, "3g.20gb")
    events = cut.nvml.nvmlEventSetCreate()
    cut.nvml.nvmlDeviceRegisterEvents(cut.gpu, cut.nvml.nvmlEventTypeXidCriticalError, events)
    cut.node.inject_xid(uuid, 43)
    cut.node.inject_xid(0, 79)
    found = [cut.nvml.nvmlEventSetWait_v2(events, 20_000) for _ in range(2)]
    assert [(each.eventData, each.gpuInstanceId, each.computeInstanceId) for each in found] == [
        (43, 2, 0),
        (79, 0xFFFFFFFF, 0xFFFFFFFF),
    ]
    assert cut.nvml.nvmlDeviceGetUUID(found[0].device) == cut.node.uuids[0]


def test_what_cannot_be_cut_is_named(cut: Cut, create: Create) -> None:
    node = cut.node
    with pytest.raises(ValueError, match=r"does not support 1g.10: it supports 1g.5gb, .*7g.40gb"):
        create_mig(node.folder, 0, "1g.10")
    with pytest.raises(ValueError, match=r"2g\.10gb cannot start at memory slice 1: must start at 0, 2, 4"):
        create_mig(node.folder, 0, "2g.10gb", start=1)
    with pytest.raises(ValueError, match=r"3g\.20gb does not support a compute instance with 4 slices"):
        create_mig(node.folder, 0, "3g.20gb", slices=4)
    with pytest.raises(ValueError, match="is not in MIG mode"):
        create_mig(node.folder, 1, "1g.5gb")
    create_mig(node.folder, 0, "7g.40gb")
    with pytest.raises(MigRefusedError, match="there is not enough free space for the MIG instance"):
        create_mig(node.folder, 0, "1g.5gb")
    with pytest.raises(ValueError, match="Tesla T4 does not support MIG"):
        set_mig(create("t4-4", node="node-2", kind=DriverKind.PYTHON).folder, 0, enabled=True)
    with pytest.raises(LookupError, match="has no MIG device MIG-1"):
        destroy_mig(node.folder, "MIG-1")
