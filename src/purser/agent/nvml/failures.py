"""What it means that a call of NVML fails: one line for every call that the agent makes.

Hardware lacks what other hardware has: a GB10 has no memory of its own, a GPU in MIG mode no utilization, a virtual GPU
no sensors, an old driver half of the calls. So each call is either a sign of life, whose failure keeps pods off the
GPU, or asks for a property, which is not known then. Whoever adds a call says here which.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec


class Meaning(StrEnum):
    """What a failure says."""

    REQUIRED = "required"
    """The device cannot be handed out without the answer: any failure is its fault."""
    WHERE_SUPPORTED = "where supported"
    """The same, but for a device that does not support the question."""
    SIGN_OF_LIFE = "sign of life"
    """A healthy device answers, or lacks what is asked for, or keeps it from this process. Any other failure is its
    fault."""
    PROPERTY = "property"
    """The value is not known. Only what NVML says of the whole device, that it is lost or needs a reset, is its
    fault."""
    REFUSAL = "refusal"
    """The driver refuses as a whole, or will not do what it is asked to: whoever calls is told so."""


class FailedCall(msgspec.Struct, frozen=True):
    """Of one call."""

    meaning: Meaning
    why: str


def _all(meaning: Meaning, why: str, calls: Iterable[str]) -> dict[str, FailedCall]:
    return dict.fromkeys(calls, FailedCall(meaning, why))


CALL_FAILURES: Mapping[str, FailedCall] = {
    **_all(
        Meaning.REQUIRED,
        "who the device is: grants are of a uuid, and models, quotas and what counts as a GPU go by the name",
        ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName"),
    ),
    **_all(
        Meaning.WHERE_SUPPORTED,
        "shares are of memory; a GPU that uses the machine's (GB10, Jetson Thor) has none to report. Without "
        "permission, which a process in a container may lack in MIG mode, its shares would be gone in silence",
        ("nvmlDeviceGetMemoryInfo",),
    ),
    **_all(
        Meaning.SIGN_OF_LIFE,
        "answered by the GPU's own processors, of which a hanging one is seen here first",
        ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"),
    ),
    **_all(
        Meaning.WHERE_SUPPORTED,
        "one in MIG mode that seemed whole would be given away beside its MIG devices (so go-nvlib takes it)",
        ("nvmlDeviceGetMigMode",),
    ),
    **_all(
        Meaning.SIGN_OF_LIFE,
        "what of a GPU in MIG mode is handed out; of most indexes there is no MIG device",
        ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"),
    ),
    **_all(
        Meaning.SIGN_OF_LIFE,
        "containers count their GPUs by their addresses, and limits of shares go by that; a GPU on no bus has none",
        ("nvmlDeviceGetPciInfo",),
    ),
    **_all(
        Meaning.PROPERTY,
        "what the GPU is and where it sits: it serves pods all the same",
        (
            "nvmlDeviceGetMinorNumber",
            "nvmlDeviceGetCudaComputeCapability",
            "nvmlDeviceGetArchitecture",
            "nvmlDeviceGetBrand",
            "nvmlDeviceGetTopologyCommonAncestor",
            "nvmlDeviceGetNvLinkState",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlDeviceGetNvLinkRemotePciInfo",
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetGpuFabricInfo",
        ),
    ),
    **_all(
        Meaning.PROPERTY,
        "what the GPU reports of its health: boards and drivers lack some of it, and no news is not bad news",
        (
            "nvmlDeviceGetEccMode",
            "nvmlDeviceGetTotalEccErrors",
            "nvmlDeviceGetSramEccErrorStatus",
            "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetRowRemapperHistogram",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetSupportedEventTypes",
            "nvmlDeviceRegisterEvents",
        ),
    ),
    **_all(
        Meaning.PROPERTY,
        "of a MIG device, which may be gone by now: its GPU is none the worse for it",
        (
            "nvmlDeviceGetAttributes_v2",
            "nvmlDeviceGetGpuInstanceId",
            "nvmlDeviceGetComputeInstanceId",
        ),
    ),
    **_all(
        Meaning.PROPERTY,
        "a measurement: its metric is missing",
        (
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlDeviceGetPcieReplayCounter",
            "nvmlDeviceGetEncoderUtilization",
            "nvmlDeviceGetDecoderUtilization",
            "nvmlDeviceGetGridLicensableFeatures_v4",
            "nvmlGpmQueryDeviceSupport",
            "nvmlGpmSampleAlloc",
            "nvmlGpmSampleFree",
            "nvmlGpmSampleGet",
            "nvmlGpmMigSampleGet",
            "nvmlGpmMetricsGet",
        ),
    ),
    **_all(
        Meaning.PROPERTY,
        "who uses the GPU; of one with many processes the list may be longer at the second question than at the first, "
        "which the binding raises as an error",
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetProcessUtilization",
        ),
    ),
    **_all(
        Meaning.PROPERTY,
        "versions, for labels and advice",
        ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetNVMLVersion"),
    ),
    **_all(
        Meaning.REFUSAL,
        "concerns all devices: `DriverError`",
        (
            "nvmlInit",
            "nvmlInit_v2",
            "nvmlShutdown",
            "nvmlDeviceGetCount",
            "nvmlDeviceGetCount_v2",
            "nvmlDeviceGetHandleByIndex_v2",
            "nvmlEventSetCreate",
            "nvmlEventSetWait_v2",
            "nvmlEventSetFree",
            "nvmlErrorString",
        ),
    ),
    **_all(
        Meaning.REFUSAL,
        "changes or lists GPU instances: `MigCallError` and `HardwareError` say which and why",
        (
            "nvmlDeviceSetMigMode",
            "nvmlDeviceGetGpuInstanceProfileInfo",
            "nvmlDeviceGetGpuInstances",
            "nvmlDeviceGetGpuInstanceById",
            "nvmlDeviceCreateGpuInstance",
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "nvmlGpuInstanceGetInfo",
            "nvmlGpuInstanceDestroy",
            "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            "nvmlGpuInstanceGetComputeInstances",
            "nvmlGpuInstanceCreateComputeInstance",
            "nvmlComputeInstanceGetInfo_v2",
            "nvmlComputeInstanceDestroy",
        ),
    ),
}

_OF_THE_DEVICE = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
"""Whatever is asked, these are about the device."""

_LACKS = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
)
"""The device, the driver or this process has no such thing; or the driver knows an older form of the question."""

TOLD_APART = (*_OF_THE_DEVICE, *_LACKS)
"""The errors that `is_fault` knows."""


def is_fault(meaning: Meaning, error: str) -> bool:
    """Whether a device is at fault that answers with this error, by the name of NVML's constant; empty: one that is not
    in `TOLD_APART`, or an answer that nobody can read."""
    if error in _OF_THE_DEVICE:
        return True
    if meaning is Meaning.PROPERTY:
        return False
    if meaning is Meaning.WHERE_SUPPORTED:
        return error not in ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")
    return meaning is Meaning.REQUIRED or error not in _LACKS
