"""The file that the C library reads a simulated driver's state from.

`render` writes `DriverState` as ``node.state`` for the library, one fact per line::

    driver_version 550.163.01       nvmlSystemGetDriverVersion; likewise nvml_version and cuda_version (12040)
    init_error 9                    nvmlInit fails with this code
    hangs 0                         whether no call at all returns
    gpu 3                           what follows is about GPU 3, its place in the profile, until the next such line
    present 1, lost 0               whether it is in its slot, whether it answers
    pci 0 7 0 20b010de 134f10de     domain, bus, device, device id and subsystem id, hexadecimal
    memory 42949672960 611319808 0  total, reserved, used, in bytes
    mig 1                           the GPU knows MIG; what it is cut into is in ``node.mig``
    mig_profile 0 19 1 1 7 0 4864 14 1 0 0 0 0 6,4,5,0,1,2,3 1g.5gb
                                    NVML's number of a profile that the GPU offers, its id, compute and memory slices,
                                    most, whether it takes the media extension, MiB, multiprocessors, engines (copy,
                                    decoders, encoders, JPEG, OFA), where it may begin, name
    mig_compute 0 1 1 14 0          of that profile a compute instance: number, slices, most, multiprocessors, places
    since 1700000000000000          when the readings that follow were so, in microseconds since the epoch
    reading nvmlDeviceGetClockInfo 1 0 1410 0
                                    what the call gives with these arguments, and what comes to it each second; see
                                    `purser.lab.driver.readings`, also of the next two
    zero nvmlDeviceGetPcieThroughput 2 1
                                    the call gives 0 for other arguments below these
    zero_fields 3 28 1 3            fields 3 to 28 are 0 for scopes below 1, and of value type 3
    page 0 4096 1700000000000000    a retired page: cause, address, time in microseconds since the epoch
    level 4 20                      nvmlGpuTopologyLevel to GPU 4
    nvlink 0 1 2 0 c4 0             link, active, type of the remote device, its domain, bus, device, hexadecimal
    process 4711 0 1073741824 80 9 0 0 1700000000000000 4294967295 4294967295
                                    pid, whether it draws, bytes, percent of SM, memory, encoder and decoder, start in
                                    microseconds since the epoch, GPU instance and compute instance
    fail nvmlDeviceGetUUID 999      this call (``*``: any) fails with this code
    hang nvmlDeviceGetUUID          this call (``*``: any) does not return while the line is there
    event 12 3 79 4294967295 4294967295
                                    sequence number, GPU, Xid, GPU instance and compute instance

A line that is absent makes the calls that need it answer "not supported".
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from purser.core.kubernetes.quantities import MIB
from purser.lab.driver.migprofiles import InstanceProfile, instance_profiles
from purser.lab.driver.parts import ProcessState
from purser.lab.driver.readings import readings_of
from purser.lab.driver.state import DriverState, GpuState, cuda_number, number_or_none, nvml_version

_gpus = msgspec.json.Decoder(GpuState)  # made here: two threads that make a type's first one can crash the process


def render(state: DriverState) -> str:
    """The state as the C library reads it."""
    lines = [
        f"driver_version {state.driver_version}",
        f"nvml_version {nvml_version(state.driver_version, state.cuda_version)}",
        f"cuda_version {cuda_number(state.cuda_version)}",
        f"init_error {state.init_error}",
        f"hangs {int(state.hangs)}",
    ]
    for index, gpu in enumerate(state.gpus):
        lines.append(f"gpu {index}\n{_gpu_text(msgspec.json.encode(gpu))}")
    for event in state.events:
        instances = f"{number_or_none(event.gpu_instance)} {number_or_none(event.compute_instance)}"
        lines.append(f"event {event.sequence} {event.gpu} {event.xid} {instances}")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=256)
def _gpu_text(encoded: bytes) -> str:
    """Of a GPU as JSON: most changes are of one of several GPUs."""
    return "\n".join(_gpu_lines(_gpus.decode(encoded)))


def _gpu_lines(gpu: GpuState) -> Iterator[str]:
    model = gpu.model
    yield f"present {int(gpu.present)}"
    yield f"lost {int(gpu.lost)}"
    yield f"uuid {gpu.uuid}"
    yield f"name {model.name}"
    yield f"pci {_address(gpu.pci)} {model.pci_device_id:x} {model.pci_subsystem_id:x}"
    yield f"memory {model.memory_mib * MIB} {model.reserved_mib * MIB} {gpu.total_used_mib * MIB}"
    if model.mig_devices:
        yield "mig 1"
        for profile in instance_profiles(model):
            yield from _profile_lines(profile)
    yield from _reading_lines(gpu)
    yield from (f"page {page.cause} {page.address} {page.time_us}" for page in gpu.retired_pages if not page.pending)
    yield from (f"level {other} {level}" for other, level in enumerate(gpu.levels))
    for number, link in enumerate(gpu.nvlinks):
        yield f"nvlink {number} {int(link.active)} {link.remote_type} {_address(link.remote)}"
    yield from map(_process_line, gpu.processes)
    yield from (f"fail {failure.call} {failure.code}" for failure in gpu.failing)
    yield from (f"hang {call}" for call in gpu.hanging)


def _reading_lines(gpu: GpuState) -> Iterator[str]:
    readings = readings_of(gpu)
    yield f"since {gpu.since_us}"
    for (call, first, second), reading in readings.values.items():
        yield f"reading {call} {first} {second} {reading.value} {reading.per_second}"
    yield from (f"zero {call} {firsts} {seconds}" for call, (firsts, seconds) in readings.zeros.items())
    for span in readings.zero_fields:
        yield f"zero_fields {span.first} {span.last} {span.scopes} {span.kind}"


def _profile_lines(profile: InstanceProfile) -> Iterator[str]:
    engines = " ".join(map(str, msgspec.structs.astuple(profile.engines)))
    yield (
        f"mig_profile {profile.number} {profile.id} {profile.slices} {profile.size} {profile.most} "
        f"{int(profile.takes_media)} {profile.memory_mib} {profile.multiprocessors} {engines} "
        f"{_join_numbers(profile.starts)} {profile.name}"
    )
    for each in profile.compute:
        yield f"mig_compute {each.number} {each.slices} {each.most} {each.multiprocessors} {_join_numbers(each.starts)}"


def _join_numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _process_line(process: ProcessState) -> str:
    load = " ".join(map(str, process.load))
    instances = f"{number_or_none(process.gpu_instance)} {number_or_none(process.compute_instance)}"
    memory = process.memory_mib * MIB
    kind = 1 if process.graphics else 2 if process.mps else 0
    return f"process {process.pid} {kind} {memory} {load} {process.started_us} {instances}"


def _address(pci: str) -> str:
    """``0000:07:00.0`` as the three hexadecimal numbers of the file."""
    return " ".join(f"{int(part, 16):x}" for part in pci.partition(".")[0].split(":"))
