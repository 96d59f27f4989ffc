"""The table of DCGM exporter's metrics against those of NVIDIA's exporter."""

from purser.core.monitoring.dcgm import METRICS, DcgmType

UPSTREAM = {
    "gauge": (
        "DEV_SM_CLOCK DEV_MEM_CLOCK DEV_MEMORY_TEMP DEV_GPU_TEMP DEV_POWER_USAGE DEV_GPU_UTIL DEV_MEM_COPY_UTIL"
        " DEV_ENC_UTIL DEV_DEC_UTIL DEV_XID_ERRORS DEV_FB_FREE DEV_FB_USED DEV_FB_RESERVED DEV_NVLINK_BANDWIDTH_TOTAL"
        " DEV_VGPU_LICENSE_STATUS DEV_ROW_REMAP_FAILURE PROF_GR_ENGINE_ACTIVE PROF_PIPE_TENSOR_ACTIVE PROF_DRAM_ACTIVE"
        " PROF_PCIE_TX_BYTES PROF_PCIE_RX_BYTES"
    ),
    "counter": (
        "DEV_TOTAL_ENERGY_CONSUMPTION DEV_PCIE_REPLAY_COUNTER DEV_UNCORRECTABLE_REMAPPED_ROWS"
        " DEV_CORRECTABLE_REMAPPED_ROWS"
    ),
    "label": "DRIVER_VERSION",
}
"""What etc/default-counters.csv and etc/dcp-metrics-included.csv of NVIDIA/dcgm-exporter 4.6.0-4.8.3 collect."""


def test_names_and_types_are_those_of_the_exporters_default_file() -> None:
    upstream = {f"DCGM_FI_{name}": kind for kind, names in UPSTREAM.items() for name in names.split()}
    assert {metric.name: metric.type.value for metric in METRICS} == upstream
    assert len(METRICS) == len(upstream)


def test_every_metric_says_where_it_is_from_and_in_which_unit() -> None:
    bare = {metric.name for metric in METRICS if not metric.unit and metric.type is not DcgmType.LABEL}
    # An Xid, counts that the name says, and two that are 0 or 1.
    assert bare == {
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    }
    assert all(metric.call.startswith("nvml") and metric.help for metric in METRICS)
