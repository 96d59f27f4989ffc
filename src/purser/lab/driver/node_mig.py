"""MIG on the GPUs of a simulated node, by the node's folder: what they are cut into, and how that changes.

Every change is atomic, under the folder's lock: drivers that are open see it at once, and may make changes of their
own. GPUs are named by their place in the profile or by uuid. An unknown one is a ``LookupError``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from purser.core.wording import counted
from purser.lab.driver.files import load, load_mig, lock_folder, save_mig
from purser.lab.driver.mig import (
    MigRefusedError,
    MigState,
    after_reset,
    create_compute,
    create_instance,
    destroy_compute,
    destroy_instance,
    mig_uuid,
    offered_profile,
    profile_of,
    switched,
)
from purser.lab.driver.state import GpuState

T = TypeVar("T")


class MigPlaceOnNode(msgspec.Struct, frozen=True):
    """Where a MIG device is: its GPU, and the ids of GPU and compute instance."""

    gpu: int
    instance: int
    compute: int


def mig_states(folder: Path) -> tuple[MigState, ...]:
    """MIG on each GPU of the node, in the order of the profile."""
    return load_mig(folder, len(load(folder).gpus))


def set_mig(folder: Path, gpu: int | str, *, enabled: bool) -> None:
    """Turn MIG mode on or off.

    Raises:
        ValueError: the GPU knows no MIG.
        MigRefusedError: something runs on the GPU or is cut out of it. The mode changes with its next reset.
    """

    def set_mode(of_gpu: GpuState, mig: MigState) -> tuple[MigState, int]:
        if not of_gpu.model.mig_devices:
            raise ValueError(f"{of_gpu.model.name} does not support MIG")
        return switched(of_gpu, mig, enabled=enabled)

    if code := _change(folder, gpu, set_mode):
        raise MigRefusedError(code)


def create_mig(
    folder: Path, gpu: int | str, profile: str, *, start: int | None = None, slices: int | None = None
) -> str:
    """Create a MIG device: a GPU instance of a profile such as ``1g.5gb``, and a compute instance that fills it, or has
    so many slices. ``start``: the memory slice at which it is to begin; None: the driver chooses. Returns its uuid.

    Raises:
        ValueError: the GPU is not in MIG mode, or offers no such profile or place.
        MigRefusedError: there is no room.
    """

    def create(of_gpu: GpuState, mig: MigState) -> tuple[MigState, str]:
        offered = offered_profile(of_gpu, mig, profile, start)
        part = next((each for each in offered.compute if each.slices == (slices or offered.slices)), None)
        if part is None:
            wanted = counted(slices or offered.slices, "slice")
            raise ValueError(f"{profile} does not support a compute instance with {wanted}")
        mig, instance = create_instance(of_gpu, mig, offered, start)
        mig, compute = create_compute(of_gpu, mig, instance, part)
        return mig, mig_uuid(of_gpu.uuid, instance, compute)

    return _change(folder, gpu, create)


def destroy_mig(folder: Path, uuid: str) -> None:
    """Destroy a MIG device, and with its last compute instance the GPU instance.

    Raises:
        LookupError: there is no such device.
        MigRefusedError: a process is in it.
    """
    place = mig_place(folder, uuid)

    def destroy(of_gpu: GpuState, mig: MigState) -> tuple[MigState, None]:
        mig = destroy_compute(of_gpu, mig, place.instance, place.compute)
        if not mig.instances[place.instance].compute:
            mig = destroy_instance(of_gpu, mig, place.instance)
        return mig, None

    _change(folder, place.gpu, destroy)


def reset_mig(folder: Path, gpu: int | str) -> None:
    """The GPU was reset: its MIG devices are gone, and the mode that waited for it is in force."""
    _change(folder, gpu, lambda _, mig: (after_reset(mig), None))


def device_uuids(folder: Path, gpu: int | str) -> tuple[str, ...]:
    """The MIG devices of a GPU, in NVML's order."""
    state = load(folder)
    index = state.index_of(gpu)
    return tuple(mig_uuid(state.gpus[index].uuid, *place) for place in mig_states(folder)[index].devices)


def mig_place(folder: Path, uuid: str) -> MigPlaceOnNode:
    """Where a MIG device is. Raises LookupError."""
    state = load(folder)
    for index, (gpu, mig) in enumerate(zip(state.gpus, mig_states(folder), strict=True)):
        for instance, compute in mig.devices:
            if mig_uuid(gpu.uuid, instance, compute) == uuid:
                return MigPlaceOnNode(index, instance, compute)
    raise LookupError(f"node {state.node} has no MIG device {uuid}")


def is_mig_uuid(gpu: int | str) -> bool:
    """Whether this names a MIG device, not a GPU."""
    return isinstance(gpu, str) and gpu.startswith("MIG-")


def process_place(folder: Path, gpu: int | str) -> MigPlaceOnNode | None:
    """Where a process on this GPU or MIG device is; None: on a whole GPU.

    Raises:
        LookupError: there is no such GPU or MIG device.
        ValueError: the GPU is in MIG mode: processes start on its MIG devices.
    """
    if is_mig_uuid(gpu):
        return mig_place(folder, str(gpu))
    if mig_states(folder)[load(folder).index_of(gpu)].enabled:
        raise ValueError(f"GPU {gpu} is in MIG mode: use one of its MIG devices instead")
    return None


def room_mib(folder: Path, place: MigPlaceOnNode) -> int:
    """Memory of the GPU instance in MiB, used or not. Raises MigRefusedError where it is gone."""
    return profile_of(load(folder).gpus[place.gpu], mig_states(folder)[place.gpu], place.instance).memory_mib


def _change(folder: Path, gpu: int | str, change: Callable[[GpuState, MigState], tuple[MigState, T]]) -> T:
    with lock_folder(folder):
        state = load(folder)
        index = state.index_of(gpu)
        states = list(load_mig(folder, len(state.gpus)))
        states[index], result = change(state.gpus[index], states[index])
        save_mig(folder, states)
    return result
