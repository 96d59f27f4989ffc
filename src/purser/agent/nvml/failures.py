"""What it means that a call of NVML fails: one line for every call that the agent makes.

Hardware lacks what other hardware has: a GB10 has no memory of its own, a GPU in MIG mode no utilization, a virtual GPU
no sensors, an old driver half of the calls. So each call is either a sign of life, whose failure keeps pods off the
GPU, or asks for a property, which is not known then. Whoever adds a call says here which.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec


class FailureMeaning(StrEnum):
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

    meaning: FailureMeaning
    why: str


def _all(meaning: FailureMeaning, why: str, calls: Iterable[str]) -> dict[str, FailedCall]:
    return dict.fromkeys(calls, FailedCall(meaning, why))


CALL_FAILURES: Mapping[str, FailedCall] = {
    **_all(
        FailureMeaning.REQUIRED,
        "identifies the device: grants name UUIDs; models, quotas and what counts as a GPU depend on the name",
        ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName"),
    ),
    **_all(
        FailureMeaning.WHERE_SUPPORTED,
        "shares partition memory. A GPU that uses the machine's memory (GB10, Jetson Thor) does not report any. "
        "If a call that lacks permission (in a container, in MIG mode) counted as unsupported, the GPU would "
        "silently lose its shares",
        ("nvmlDeviceGetMemoryInfo",),
    ),
    **_all(
        FailureMeaning.SIGN_OF_LIFE,
        "is answered by the GPU's own processors, so a hang shows here first",
        ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"),
    ),
    **_all(
        FailureMeaning.WHERE_SUPPORTED,
        "if a GPU in MIG mode were mistaken for a whole GPU, it would be granted in addition to its MIG devices (as "
        "with go-nvlib)",
        ("nvmlDeviceGetMigMode",),
    ),
    **_all(
        FailureMeaning.SIGN_OF_LIFE,
        "finds a GPU's MIG devices; most indexes have no device",
        ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex"),
    ),
    **_all(
        FailureMeaning.SIGN_OF_LIFE,
        "GPUs are numbered by PCI address inside containers, and share limits rely on that numbering; a GPU that "
        "is not on a PCI bus has no address",
        ("nvmlDeviceGetPciInfo",),
    ),
    **_all(
        FailureMeaning.PROPERTY,
        "describes the GPU and its place in the machine; without this information, the GPU still serves pods",
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
        FailureMeaning.PROPERTY,
        "reports health; some boards and drivers do not support these calls, which is not a sign of a fault",
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
        FailureMeaning.PROPERTY,
        "describes a MIG device, which may no longer exist; its GPU is unaffected",
        (
            "nvmlDeviceGetAttributes_v2",
            "nvmlDeviceGetGpuInstanceId",
            "nvmlDeviceGetComputeInstanceId",
        ),
    ),
    **_all(
        FailureMeaning.PROPERTY,
        "is a measurement; on failure, only its metric is missing",
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
        FailureMeaning.PROPERTY,
        "lists the GPU's processes; if the list grows between the binding's two calls, the binding raises an error",
        (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetProcessUtilization",
        ),
    ),
    **_all(
        FailureMeaning.PROPERTY,
        "reports versions, for labels and advice",
        ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetNVMLVersion"),
    ),
    **_all(
        FailureMeaning.REFUSAL,
        "concerns all devices; raises `DriverError`",
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
        FailureMeaning.REFUSAL,
        "changes or lists GPU instances; `MigCallError` and `HardwareError` say which call failed and why",
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

_DEVICE_ERRORS = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
"""Whatever is asked, these are about the device."""

_UNSUPPORTED_ERRORS = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
)
"""The device, the driver or this process has no such thing; or the driver knows an older form of the question."""

DISTINGUISHED_ERRORS = (*_DEVICE_ERRORS, *_UNSUPPORTED_ERRORS)
"""The errors that `is_fault` knows."""


def is_fault(meaning: FailureMeaning, error: str) -> bool:
    """Whether a device is at fault that answers with this error, by the name of NVML's constant; empty: one that is not
    in `DISTINGUISHED_ERRORS`, or an answer that nobody can read."""
    if error in _DEVICE_ERRORS:
        return True
    if meaning is FailureMeaning.PROPERTY:
        return False
    if meaning is FailureMeaning.WHERE_SUPPORTED:
        return error not in ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")
    return meaning is FailureMeaning.REQUIRED or error not in _UNSUPPORTED_ERRORS
