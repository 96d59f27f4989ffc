"""What happens to a simulated GPU, as pure functions of its state: resets, failing calls, processes, errors, links."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from purser.core.health.signs import RecoveryAction, RemappedRows
from purser.core.wording import counted
from purser.lab.driver.parts import (
    NVLINK_ERRORS,
    BankSpares,
    CallFailure,
    EccErrors,
    MemoryLocation,
    NvLinkError,
    NvLinkState,
    ProcessState,
    RetiredPage,
)
from purser.lab.driver.state import MAX_FAILURES, MAX_PAGES, MAX_PROCESSES, MEMORY_BANKS, GpuState

T = TypeVar("T")


def after_reset(gpu: GpuState) -> GpuState:
    """The GPU answers, nothing runs on it, and what waited for a reset is done. MIG is not part of this state."""
    return replace(
        gpu,
        lost=False,
        failures=(),
        hanging=(),
        processes=(),
        memory_used_mib=0,
        slowdowns=(),
        recovery_action=None if gpu.recovery_action is None else int(RecoveryAction.NONE),
        ecc={place: EccErrors(0, 0, *errors.counts[2:]) for place, errors in gpu.ecc.items()},
        remapped_rows=replace(gpu.remapped_rows, pending=False),
        retired_pages=tuple(replace(page, pending=False) for page in gpu.retired_pages),
    )


def with_failure(gpu: GpuState, failure: CallFailure) -> GpuState:
    """One more call fails. Raises ValueError where the library has no room for another one."""
    return replace(gpu, failures=_append_failure(gpu.failures, failure, "fail"))


def with_hanging(gpu: GpuState, call: str) -> GpuState:
    """One more call hangs. Raises ValueError where the library has no room for another one."""
    return replace(gpu, hanging=_append_failure(gpu.hanging, call, "hang"))


def with_process(gpu: GpuState, process: ProcessState, room_mib: int | None) -> GpuState:
    """A process runs on the GPU, or uses something else of it. ``room_mib``: of the MIG device that it is on; None: it
    is on the whole GPU.

    Raises ValueError where its memory does not fit, or the library has no room for another process.
    """
    without = without_process(gpu, process.pid)
    others = without.processes
    where, free_mib = gpu.uuid, gpu.model.memory_mib - without.total_used_mib - gpu.model.reserved_mib
    if room_mib is not None:
        where = f"the MIG device on {gpu.uuid}"
        free_mib = room_mib - sum(p.memory_mib for p in others if p.gpu_instance == process.gpu_instance)
    if process.memory_mib > free_mib:
        raise ValueError(f"{where} has only {free_mib} MiB free, but the process needs {process.memory_mib} MiB")
    if len(others) == MAX_PROCESSES:
        raise ValueError(f"{gpu.uuid} already has {MAX_PROCESSES} processes, the maximum of the simulated driver")
    before = next((each for each in gpu.processes if each.pid == process.pid), process)
    return replace(gpu, processes=(*others, replace(process, started_us=before.started_us)))


def without_process(gpu: GpuState, pid: int) -> GpuState:
    """A process has ended; one that is not there changes nothing."""
    return replace(gpu, processes=tuple(process for process in gpu.processes if process.pid != pid))


def with_ecc_errors(gpu: GpuState, place: MemoryLocation, corrected: int, uncorrected: int) -> GpuState:
    """So many more errors at one place."""
    before = gpu.ecc.get(place, EccErrors())
    counts = {"corrected": before.corrected + corrected, "uncorrected": before.uncorrected + uncorrected}
    return replace(gpu, ecc={**gpu.ecc, place: replace(before, **counts)})


def with_remapped_rows(
    gpu: GpuState,
    correctable: int,
    uncorrectable: int,
    pending: bool | None,
    failed: bool | None,
    spares: BankSpares,
) -> GpuState:
    """So many more rows are replaced, each in a bank of its own that has these spares left; ``pending``, ``failed``:
    None for as it was. Raises ValueError where the GPU is older than row remapping, or has no more banks."""
    if not gpu.model.row_remapping:
        raise ValueError(f"{gpu.model.name} does not support row remapping: it uses page retirement")
    before = gpu.remapped_rows
    rows = RemappedRows(
        before.correctable + correctable,
        before.uncorrectable + uncorrectable,
        before.pending if pending is None else pending,
        before.failed if failed is None else failed,
    )
    banks = {**gpu.banks, spares: gpu.banks.get(spares, 0) + correctable + uncorrectable}
    if sum(banks.values()) > MEMORY_BANKS:
        raise ValueError(
            f"{gpu.uuid} cannot remap more rows: each of the {MEMORY_BANKS} memory banks already has a remapped row"
        )
    return replace(gpu, remapped_rows=rows, banks=banks)


def with_retired_page(gpu: GpuState, page: RetiredPage) -> GpuState:
    """One more page is given up. Raises ValueError where the GPU replaces rows instead, or has given up too many."""
    if gpu.model.row_remapping:
        raise ValueError(f"{gpu.model.name} does not support page retirement: it uses row remapping")
    if len(gpu.retired_pages) == MAX_PAGES:
        raise ValueError(f"{gpu.uuid} already has {MAX_PAGES} retired pages, the maximum")
    return replace(gpu, retired_pages=(*gpu.retired_pages, page))


def with_nvlink(gpu: GpuState, link: int, *, active: bool) -> GpuState:
    """The link is up or down. Raises LookupError where the GPU has no such link."""
    return _with_link(gpu, link, lambda before: replace(before, active=active))


def with_nvlink_errors(gpu: GpuState, link: int, error: NvLinkError, count: int) -> GpuState:
    """The link has counted so many more errors. Raises LookupError where the GPU has no such link."""

    def add(before: NvLinkState) -> NvLinkState:
        which = NVLINK_ERRORS.index(error)
        errors = (*before.errors[:which], before.errors[which] + count, *before.errors[which + 1 :])
        return replace(before, errors=errors)

    return _with_link(gpu, link, add)


def _with_link(gpu: GpuState, link: int, change: Callable[[NvLinkState], NvLinkState]) -> GpuState:
    if not 0 <= link < len(gpu.nvlinks):
        has = f"{counted(len(gpu.nvlinks), 'NVLink')}, numbered from 0" if gpu.nvlinks else "no NVLinks"
        raise LookupError(f"{gpu.uuid} does not have NVLink {link}: it has {has}")
    links = list(gpu.nvlinks)
    links[link] = change(links[link])
    return replace(gpu, nvlinks=tuple(links))


def _append_failure(several: tuple[T, ...], one: T, verb: str) -> tuple[T, ...]:
    if one not in several and len(several) == MAX_FAILURES:
        raise ValueError(f"{MAX_FAILURES} calls are already set to {verb}: clear them first")
    return tuple(dict.fromkeys((*several, one)))
