"""The metrics of NVIDIA's DCGM exporter: its default counters by name, and which call of NVML has each.

Names, types and order are those of etc/default-counters.csv in NVIDIA/dcgm-exporter 4.6.0-4.8.3; those of
etc/dcp-metrics-included.csv are the same. Exporter 4.9.0 renames them and changes units: its names are not here, nor
are fields that the file has commented out. Calls and units are those by which DCGM 4.6 reads the field
(dcgmlib/src/DcgmCacheManager.cpp), or calls that read the same counter; for profiling fields, NVML's GPU performance
monitoring (GPM), which DCGM reads, too, where a GPU has it.
"""

from enum import StrEnum

import msgspec


class DcgmType(StrEnum):
    """Type of a metric in the exporter's file."""

    GAUGE = "gauge"
    COUNTER = "counter"
    LABEL = "label"
    """No metric of its own: a label of all others."""


class DcgmMetric(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the exporter's file, and where its value is from."""

    name: str
    type: DcgmType
    help: str
    unit: str = ""
    """Empty: a number of its own kind, such as an Xid."""
    call: str
    """NVML's function, with what is asked of it."""
    limits: str = ""
    """Where there is no value, and what the type does not show. A GPU or driver that lacks a call lacks the metric."""
    per_instance: bool = False
    """On a GPU in MIG mode this is reported for each GPU instance, and not for the whole GPU."""


_GAUGE, _COUNTER = DcgmType.GAUGE, DcgmType.COUNTER
_GPM = "nvmlGpmMetricsGet"
_GPM_LIMITS = "Hopper and newer; on older GPUs, only DCGM's profiling library measures this"
_AMPERE = "Ampere and newer"

METRICS: tuple[DcgmMetric, ...] = (
    DcgmMetric(
        name="DCGM_FI_DEV_SM_CLOCK",
        type=_GAUGE,
        help="SM clock frequency.",
        unit="MHz",
        call="nvmlDeviceGetClockInfo(SM)",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_MEM_CLOCK",
        type=_GAUGE,
        help="Memory clock frequency.",
        unit="MHz",
        call="nvmlDeviceGetClockInfo(MEM)",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_MEMORY_TEMP",
        type=_GAUGE,
        help="Memory temperature.",
        unit="°C",
        call="nvmlDeviceGetFieldValues(MEMORY_TEMP)",
        limits="only GPUs with HBM; DCGM reports 0 for others",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_GPU_TEMP",
        type=_GAUGE,
        help="GPU temperature.",
        unit="°C",
        call="nvmlDeviceGetTemperature(GPU)",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_POWER_USAGE",
        type=_GAUGE,
        help="Power draw.",
        unit="W",
        call="nvmlDeviceGetPowerUsage",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        type=_COUNTER,
        help="Energy used since the driver was loaded.",
        unit="mJ",
        call="nvmlDeviceGetTotalEnergyConsumption",
        limits="Volta and newer",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        type=_COUNTER,
        help="PCIe replays.",
        call="nvmlDeviceGetPcieReplayCounter",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_GPU_UTIL",
        type=_GAUGE,
        help="Percentage of time during which a kernel was running.",
        unit="%",
        call="nvmlDeviceGetUtilizationRates",
        limits="not in MIG mode",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_MEM_COPY_UTIL",
        type=_GAUGE,
        help="Percentage of time during which memory was read or written.",
        unit="%",
        call="nvmlDeviceGetUtilizationRates",
        limits="not in MIG mode",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_ENC_UTIL",
        type=_GAUGE,
        help="Utilization of the video encoder.",
        unit="%",
        call="nvmlDeviceGetEncoderUtilization",
        limits="not in MIG mode",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_DEC_UTIL",
        type=_GAUGE,
        help="Utilization of the video decoder.",
        unit="%",
        call="nvmlDeviceGetDecoderUtilization",
        limits="not in MIG mode",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_XID_ERRORS",
        type=_GAUGE,
        help="The last Xid, or 0 if there was none.",
        call="nvmlEventSetWait",
        limits="only Xids since the agent started, those of the GPU's MIG devices included; the labels err_code and "
        "err_msg identify the Xid",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_FB_FREE",
        type=_GAUGE,
        help="Free memory.",
        unit="MiB",
        call="nvmlDeviceGetMemoryInfo",
        per_instance=True,
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_FB_USED",
        type=_GAUGE,
        help="Memory in use.",
        unit="MiB",
        call="nvmlDeviceGetMemoryInfo",
        per_instance=True,
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_FB_RESERVED",
        type=_GAUGE,
        help="Memory reserved by the driver.",
        unit="MiB",
        call="nvmlDeviceGetMemoryInfo",
        limits="driver R510 and newer; older drivers count this memory as used",
        per_instance=True,
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        type=_GAUGE,
        help="Data transferred over all NVLinks of the GPU, in both directions.",
        unit="MB/s",
        call="nvmlDeviceGetFieldValues(NVLINK_THROUGHPUT_DATA_RX, NVLINK_THROUGHPUT_DATA_TX)",
        limits="the rate between two measurements; exporters before 4.8.3 declare a counter",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        type=_GAUGE,
        help="1 while a vGPU is licensed.",
        call="nvmlDeviceGetGridLicensableFeatures",
        limits="0 for a GPU that does not need a licence",
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        type=_COUNTER,
        help="Memory rows remapped after uncorrectable errors.",
        call="nvmlDeviceGetRemappedRows",
        limits=_AMPERE,
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        type=_COUNTER,
        help="Memory rows remapped after correctable errors.",
        call="nvmlDeviceGetRemappedRows",
        limits=_AMPERE,
    ),
    DcgmMetric(
        name="DCGM_FI_DEV_ROW_REMAP_FAILURE",
        type=_GAUGE,
        help="1 if remapping a memory row has failed.",
        call="nvmlDeviceGetRemappedRows",
        limits=_AMPERE,
    ),
    DcgmMetric(
        name="DCGM_FI_DRIVER_VERSION",
        type=DcgmType.LABEL,
        help="Version of the driver.",
        call="nvmlSystemGetDriverVersion",
    ),
    DcgmMetric(
        name="DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        type=_GAUGE,
        help="Fraction of time during which the graphics or compute engine was active.",
        unit="0 to 1",
        call=f"{_GPM}(GRAPHICS_UTIL)",
        limits=_GPM_LIMITS,
        per_instance=True,
    ),
    DcgmMetric(
        name="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        type=_GAUGE,
        help="Fraction of cycles during which tensor cores were active.",
        unit="0 to 1",
        call=f"{_GPM}(ANY_TENSOR_UTIL)",
        limits=_GPM_LIMITS,
        per_instance=True,
    ),
    DcgmMetric(
        name="DCGM_FI_PROF_DRAM_ACTIVE",
        type=_GAUGE,
        help="Fraction of cycles during which memory was read or written.",
        unit="0 to 1",
        call=f"{_GPM}(DRAM_BW_UTIL)",
        limits=_GPM_LIMITS,
        per_instance=True,
    ),
    DcgmMetric(
        name="DCGM_FI_PROF_PCIE_TX_BYTES",
        type=_GAUGE,
        help="Data sent over PCIe, including headers.",
        unit="B/s",
        call=f"{_GPM}(PCIE_TX_PER_SEC)",
        limits=_GPM_LIMITS,
    ),
    DcgmMetric(
        name="DCGM_FI_PROF_PCIE_RX_BYTES",
        type=_GAUGE,
        help="Data received over PCIe, including headers.",
        unit="B/s",
        call=f"{_GPM}(PCIE_RX_PER_SEC)",
        limits=_GPM_LIMITS,
    ),
)
