"""The table of DCGM exporter's metrics against the exporter's own file, where that is at hand."""

import csv

import pytest
from tests.conformance.vectors import vectors_folder

from purser.core.monitoring.dcgm import METRICS, DcgmType

COUNTERS = "dcgm-exporter/default-counters.csv"


def test_names_and_types_are_those_of_the_exporters_default_file() -> None:
    path = vectors_folder() / COUNTERS
    if not path.exists():
        pytest.skip(f"no {path}: it is etc/default-counters.csv of NVIDIA/dcgm-exporter")
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    upstream = [(row[0].strip(), row[1].strip()) for row in csv.reader(lines)]
    assert [(metric.name, metric.type.value) for metric in METRICS] == upstream


def test_every_metric_says_where_it_is_from_and_in_which_unit() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) == 26
    bare = {metric.name for metric in METRICS if not metric.unit and metric.type is not DcgmType.LABEL}
    # An Xid, and two that are 0 or 1.
    assert bare == {
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    }
    assert all(metric.call.startswith("nvml") and metric.help.endswith(".") for metric in METRICS)
