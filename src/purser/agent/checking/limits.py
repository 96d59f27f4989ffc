"""What could hold containers to their shares: HAMi-core's library, MPS. None of it is needed: without it limits of
shares are advisory."""

from collections.abc import Iterator
from pathlib import Path

from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.host.files import read_head
from purser.agent.host.hostfiles import on_host
from purser.agent.inventory.building import LIBRARY_FILE, PRELOAD_FILE
from purser.agent.inventory.driver_roots import driver_roots
from purser.agent.settings import AgentSettings

_MPS_CONTROL = ("usr/bin/nvidia-cuda-mps-control", "bin/nvidia-cuda-mps-control")
_MAX_PRELOAD_FILE_BYTES = 64 << 10
_BOTH_OR_NEITHER = "Install both of HAMi-core's files in this folder, or remove them."


def check_hami_core(settings: AgentSettings) -> Iterator[CheckResult]:
    """Its two files."""
    yield _hami_core_result(settings)


def check_mps(settings: AgentSettings) -> Iterator[CheckResult]:
    """The program that is its daemon."""
    yield _mps_result(settings)


def _hami_core_result(settings: AgentSettings) -> CheckResult:
    folder = on_host(settings, settings.hami_core_dir)
    there = [name for name in (LIBRARY_FILE, PRELOAD_FILE) if (folder / name).is_file()]
    if not there:
        return CheckResult(
            "HAMi-core", CheckState.ABSENT, f"{settings.hami_core_dir} contains neither of HAMi-core's files"
        )
    if len(there) == 1:
        return CheckResult(
            "HAMi-core", CheckState.WARNING, f"{settings.hami_core_dir} contains only {there[0]}", _BOTH_OR_NEITHER
        )
    try:
        preloads = read_head(folder / PRELOAD_FILE, _MAX_PRELOAD_FILE_BYTES).decode(errors="replace")
    except OSError as error:
        return CheckResult(
            "HAMi-core",
            CheckState.WARNING,
            f"{settings.hami_core_dir}/{PRELOAD_FILE}: {error.strerror or error}",
            "Make the file readable, or remove both of HAMi-core's files.",
        )
    if LIBRARY_FILE not in preloads:
        message = (
            f"{settings.hami_core_dir}/{PRELOAD_FILE} does not name {LIBRARY_FILE}, so containers do not load the "
            f"library"
        )
        return CheckResult("HAMi-core", CheckState.WARNING, message, "Copy the file from HAMi-core's image.")
    return CheckResult("HAMi-core", CheckState.OK, f"installed in {settings.hami_core_dir}")


def _mps_result(settings: AgentSettings) -> CheckResult:
    roots = driver_roots(settings.driver_root_file, settings.driver_roots, settings.host_root) or (settings.host_root,)
    found: Path | None = next((root / name for root in roots for name in _MPS_CONTROL if (root / name).exists()), None)
    if found is None:
        places = " or ".join(map(str, roots))
        return CheckResult("MPS", CheckState.ABSENT, f"nvidia-cuda-mps-control was not found under {places}")
    return CheckResult("MPS", CheckState.OK, f"found {found}")
