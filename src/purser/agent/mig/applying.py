"""Brings GPUs into a layout. What fails half-way is undone: a node must not be left with no GPU at all."""

from collections.abc import Callable, Mapping

from purser.agent.mig.hardware import HardwareError, Layout, MigGpu, MigHardware


class WithdrawnError(Exception):
    """The layout is no longer requested; the message says which GPUs have it already."""


def changed_layouts(gpus: tuple[MigGpu, ...], wanted: Mapping[int, Layout]) -> dict[int, Layout]:
    """The GPUs that are to be changed, and what into."""
    return {gpu.index: wanted[gpu.index] for gpu in gpus if wanted.get(gpu.index, gpu.layout) != gpu.layout}


def apply_layouts(
    hardware: MigHardware, wanted: Mapping[int, Layout], is_wanted: Callable[[], bool] = lambda: True
) -> None:
    """Change what differs, and see that it is so. Doing it twice changes nothing. ``is_wanted`` is asked before each
    GPU.

    Raises `HardwareError`: then the GPUs are as they were before, or the message says that they are not; and
    `WithdrawnError` between two GPUs: each of them is whole, and undoing would take as long again.
    """
    before = {gpu.index: gpu for gpu in hardware.gpus()}
    changes = changed_layouts(tuple(before.values()), wanted)
    touched: list[int] = []
    try:
        for index, layout in changes.items():
            if not is_wanted():
                raise WithdrawnError(f"the request was withdrawn; GPUs changed before that: {_listed(touched)}")
            touched.append(index)
            _apply_to_gpu(hardware, before[index], layout)
        _verify(hardware, changes)
    except HardwareError as error:
        raise HardwareError(
            f"{error}; {_undo(hardware, {index: before[index].layout for index in touched})}"
        ) from error


def _listed(indexes: list[int]) -> str:
    return ", ".join(f"GPU {index}" for index in indexes) or "none"


def _apply_to_gpu(hardware: MigHardware, gpu: MigGpu, layout: Layout) -> None:
    if gpu.layout.enabled and not layout.enabled:
        hardware.set_devices(gpu.index, ())
    if gpu.layout.enabled != layout.enabled:
        hardware.set_mode(gpu.index, layout.enabled)
    if layout.enabled:
        hardware.set_devices(gpu.index, layout.devices)


def _verify(hardware: MigHardware, wanted: Mapping[int, Layout]) -> None:
    """The driver's word that it was done is not enough: what is there now counts."""
    left = changed_layouts(hardware.gpus(), wanted)
    for index, layout in left.items():
        raise HardwareError(f"GPU {index} does not have the requested layout ({describe(layout)})")


def _undo(hardware: MigHardware, former: Mapping[int, Layout]) -> str:
    try:
        now = {gpu.index: gpu for gpu in hardware.gpus()}
        for index in changed_layouts(tuple(now.values()), former):
            _apply_to_gpu(hardware, now[index], former[index])
    except HardwareError as error:
        return f"the previous layout could not be restored: {error}"
    return "the previous layout was restored"


def describe(layout: Layout) -> str:
    """In words."""
    if not layout.enabled:
        return "without MIG"
    return ", ".join(layout.devices) if layout.devices else "MIG without devices"
