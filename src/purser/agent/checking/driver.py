"""Kernel module, NVML library, GPUs and their device files."""

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from purser.agent.checking.config import check_config_on
from purser.agent.checking.mig import check_on_demand, problems_of_instances, wants_on_demand
from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.host.files import read_head
from purser.agent.host.hostfiles import on_host
from purser.agent.host.sysfs import NVIDIA_VENDOR
from purser.agent.host.threads import run_in_thread
from purser.agent.nvml.driver import Driver, DriverError, DriverInfo, Gpu, for_pods
from purser.agent.nvml.library import LIBRARY_FOLDERS, NVML_INIT
from purser.agent.settings import AgentSettings
from purser.core.device.counting import is_usable_by_pods
from purser.core.health.signs import FaultKind

_MODULE_FILE = Path("/proc/driver/nvidia/version")
_MODULE_VERSION = re.compile(r"Module\D*?\s(\d+(?:\.\d+)+)\s")
_MAX_MODULE_FILE_BYTES = 4096
_INSTALL_ADVICE = (
    "Install NVIDIA's driver on the node, or let the operator install it (spec.driver in the ClusterPolicy)."
)
_SET_DRIVER_ROOT = "Set the location of the driver's libraries with --driver-root (agent.driverRoot in the chart)."
_RESET_FAULTY_GPU = "Check dmesg for the GPU's Xid errors. Reset the GPU or, if that does not help, reboot the node."
_RUN_PRIVILEGED = "Run both the check and the agent privileged and as root."
_NVML_FAILED = (
    "Check dmesg for NVRM messages. If the driver was updated while the old kernel module was loaded, reboot the node."
)
_LOAD_MODULE = "Load the module (modprobe nvidia). If that fails, check dmesg."
_CREATE_MIG_DEVICES = (
    "Create MIG devices (with the node's label nvidia.com/mig.config, or nvidia-smi mig), or disable MIG."
)
_NO_XIDS = (
    "The GPU's health is known only from probes. Update the driver if it is older than R450; on Jetson and WSL "
    "this is expected."
)
_CONTROL_MINOR = "255"
"""Of /dev/nvidiactl (``NV_CTL_DEVICE_NUM`` of nvidia-modprobe)."""
_DXCORE = "libdxcore.so"
"""Where it is, NVIDIA's container toolkit takes a node for WSL, whose driver is Windows' and which has no kernel module
of NVIDIA's; containers then get /dev/dxg (`HasDXCore` of go-nvlib; `lib-wsl.go` and `driver-wsl.go` of the toolkit's
``pkg/nvcdi``, 1.20.0)."""
_NO_DXG = (
    "Update NVIDIA's driver on Windows and the WSL kernel (wsl --update): the kernel module dxgkrnl creates the file."
)
_DISPLAY_GPU_NOTE = (
    "drives the machine's display, so pods do not get this GPU; NVIDIA's device plugin does not list it either"
)
_REBOOT = (
    "The old module is still loaded: reboot the node, or unload the module (modprobe -r) while nothing uses the GPUs."
)


async def check_driver(settings: AgentSettings, find_driver: Callable[[], Driver]) -> tuple[CheckResult, ...]:
    """The module first: without it the library says no more than that it cannot reach the driver."""
    module = _module_version(settings)
    is_on_demand = wants_on_demand(settings)
    reading = run_in_thread(lambda: _query_driver(find_driver, is_on_demand), "check driver")
    try:
        async with asyncio.timeout(settings.probe_timeout_s):
            info, listed, unreadable = await reading
    except TimeoutError:
        message = f"the driver has not answered within {settings.probe_timeout_s:g} s"
        advice = "Check dmesg for Xid errors. If a GPU hangs, reset the GPU or reboot the node."
        return (_check_module(settings, module), CheckResult("driver library", CheckState.FAILED, message, advice))
    except DriverError as error:
        return (
            _check_module(settings, module),
            CheckResult("driver library", CheckState.FAILED, str(error), _NVML_FAILED),
        )
    library = _check_library(settings, info, module)
    if info.absent is not None:
        return (_check_module(settings, module), library)
    gpus = for_pods(listed)
    on_demand = check_on_demand(settings, gpus, unreadable) if is_on_demand else ()
    found = (*_check_gpus(listed, is_on_demand), *on_demand, *check_config_on(settings, gpus))
    return (_check_module(settings, module), library, *found, _check_device_files(settings, gpus))


def _query_driver(
    find_driver: Callable[[], Driver], on_demand: bool
) -> tuple[DriverInfo, tuple[Gpu, ...], Mapping[str, str]]:
    """What the driver lists, and of which GPUs the GPU instances cannot be read."""
    driver = find_driver()
    try:
        gpus = driver.scan()
        return driver.info(), gpus, problems_of_instances(driver, gpus) if on_demand else {}
    finally:
        driver.close()


def _module_version(settings: AgentSettings) -> str | None:
    """None: it is not loaded. Empty: it does not say."""
    try:
        text = read_head(on_host(settings, _MODULE_FILE), _MAX_MODULE_FILE_BYTES).decode(errors="replace")
    except OSError:
        return None
    found = _MODULE_VERSION.search(text)
    return "" if found is None else found[1]


def _check_module(settings: AgentSettings, version: str | None) -> CheckResult:
    if version is not None:
        return CheckResult("kernel module", CheckState.OK, f"nvidia {version}".strip())
    if _is_wsl(settings):
        return CheckResult("kernel module", CheckState.OK, "not needed: WSL uses the Windows driver")
    if _has_nvidia_device(settings):
        return CheckResult("kernel module", CheckState.FAILED, "nvidia is not loaded", _LOAD_MODULE)
    return CheckResult(
        "kernel module",
        CheckState.FAILED,
        "nvidia is not loaded, and there is no NVIDIA GPU on the PCI bus",
        "If the node should have GPUs, check lspci and the firmware settings.",
    )


def _is_wsl(settings: AgentSettings) -> bool:
    roots = (settings.host_root, *settings.driver_roots)
    return any((root / folder / _DXCORE).exists() for root in roots for folder in LIBRARY_FOLDERS)


def _has_nvidia_device(settings: AgentSettings) -> bool:
    def vendor(device: Path) -> str:
        try:
            return read_head(device / "vendor", 64).decode(errors="replace").strip().lower()
        except OSError:
            return ""

    return any(vendor(each) == NVIDIA_VENDOR for each in (settings.sysfs_root / "bus/pci/devices").glob("*"))


def _check_library(settings: AgentSettings, info: DriverInfo, module: str | None) -> CheckResult:
    if info.absent is not None:
        advice = _advice_without_driver(settings, info.absent, module)
        return CheckResult("driver library", CheckState.FAILED, info.absent, advice)
    message = f"NVML, driver version {info.version or 'unknown'}, CUDA {info.cuda_version or 'unknown'}"
    if module and info.version and module != info.version:
        return CheckResult(
            "driver library", CheckState.FAILED, f"{message}, but the kernel module has version {module}", _REBOOT
        )
    return CheckResult("driver library", CheckState.OK, message)


def _advice_without_driver(settings: AgentSettings, why: str, module: str | None) -> str:
    """A library that was found, but does not start, needs neither another place nor an installation."""
    if f"{NVML_INIT}: " in why:
        if _is_wsl(settings):
            return _NO_DXG
        return _LOAD_MODULE if module is None else _NVML_FAILED
    return _INSTALL_ADVICE if module is None else _SET_DRIVER_ROOT


def _check_gpus(gpus: tuple[Gpu, ...], on_demand: bool) -> Iterator[CheckResult]:
    if not for_pods(gpus):
        found = "the driver lists no GPUs that pods can use" if gpus else "the driver lists no GPUs"
        yield CheckResult("GPUs", CheckState.FAILED, found, "Check dmesg for NVRM messages.")
    for gpu in gpus:
        what = f"GPU {gpu.index}"
        who = f"{gpu.name or 'unknown'} {gpu.uuid or ''}".strip()
        if not is_usable_by_pods(gpu.name):
            yield CheckResult(what, CheckState.OK, f"{who} {_DISPLAY_GPU_NOTE}")
        elif gpu.fault is not None:
            yield CheckResult(
                what,
                CheckState.FAILED,
                f"{who}: {gpu.fault}",
                _RUN_PRIVILEGED if gpu.fault.kind is FaultKind.NO_PERMISSION else _RESET_FAULTY_GPU,
            )
        elif gpu.mig is not None and gpu.mig.enabled != gpu.mig.pending:
            now, then = _mode_word(gpu.mig.enabled), _mode_word(gpu.mig.pending)
            message = f"{who}: MIG is {now}, but will be {then} after the next reset"
            yield CheckResult(
                what, CheckState.WARNING, message, "Reset the GPU while nothing uses it (nvidia-smi --gpu-reset)."
            )
        elif not gpu.watches_xids:
            message = f"{who}: the driver does not report Xid errors for this GPU"
            yield CheckResult(what, CheckState.WARNING, message, _NO_XIDS)
        elif gpu.is_partitioned and not gpu.migs and not on_demand:
            yield CheckResult(
                what, CheckState.WARNING, f"{who}: MIG is enabled, but there are no MIG devices", _CREATE_MIG_DEVICES
            )
        else:
            yield CheckResult(what, CheckState.OK, f"{who}, {_memory(gpu)}, MIG {_mig(gpu)}")


def _memory(gpu: Gpu) -> str:
    return f"{gpu.memory_mib} MiB" if gpu.memory_mib else "memory unknown"


def _mig(gpu: Gpu) -> str:
    return "not supported" if gpu.mig is None else _mode_word(gpu.mig.enabled)


def _mode_word(enabled: bool) -> str:
    return "enabled" if enabled else "disabled"


def _check_device_files(settings: AgentSettings, gpus: tuple[Gpu, ...]) -> CheckResult:
    if _is_wsl(settings):
        wanted, advice = ["dxg"], _NO_DXG
    else:
        wanted = ["nvidiactl", "nvidia-uvm", *(f"nvidia{gpu.minor}" for gpu in gpus if gpu.minor is not None)]
        advice = ""
    missing = [name for name in wanted if not os.access(on_host(settings, Path("/dev")) / name, os.F_OK)]
    if missing:
        names = ", ".join(f"/dev/{name}" for name in missing)
        return CheckResult("device files", CheckState.FAILED, f"missing: {names}", advice or _modprobe_advice(missing))
    found = f"{len(wanted)} device files in /dev" if len(wanted) > 1 else f"/dev/{wanted[0]}"
    return CheckResult("device files", CheckState.OK, found)


def _modprobe_advice(missing: Iterable[str]) -> str:
    """nvidia-modprobe makes the files of GPUs and, with -u, those of UVM, but not both in one call."""
    numbers = [_CONTROL_MINOR if name == "nvidiactl" else name.removeprefix("nvidia") for name in missing]
    minors = [f"-c {number}" for number in numbers if number.isdecimal()]
    commands = [" ".join(["nvidia-modprobe", *minors])] if minors else []
    commands += ["nvidia-modprobe -u -c 0"] if "nvidia-uvm" in missing else []
    return (
        f"Run {' and '.join(commands)} on the node. The persistence daemon (nvidia-persistenced) keeps the device "
        "files in place."
    )
