"""What a stolen node token can write of its node's kubelet costs the scheduler no more than an honest node's."""

import msgspec
import pytest

from purser.agent.settings import MAX_SLOTS
from purser.core.kubelet.config import KubeletConfig
from purser.core.kubelet.report.format import (
    FORMAT,
    MAX_REPORTED_DEVICES,
    DeviceGroup,
    KubeletReport,
    ReportError,
    ResourceReport,
)
from purser.core.kubelet.report.reading import state_of


def report_of(*counts):
    config = KubeletConfig()
    groups = tuple(
        DeviceGroup((0,), True, ((f"GPU-{number}::", f"0-{count - 1}"),)) for number, count in enumerate(counts)
    )
    return KubeletReport(FORMAT, config.version, config, resources={"nvidia.com/gpu": ResourceReport(groups)})


def test_sixteen_gpus_with_all_slots_fit_in_a_report():
    known = state_of(report_of(*[MAX_SLOTS] * 16)).devices.resources["nvidia.com/gpu"]
    assert len(known.devices) == 16 * MAX_SLOTS


@pytest.mark.parametrize("counts", [(MAX_REPORTED_DEVICES + 1,), (MAX_SLOTS,) * 17, (65_536,)])
def test_a_report_of_more_devices_is_refused(counts):
    with pytest.raises(ReportError, match="device IDs"):
        state_of(report_of(*counts))


def test_and_so_are_resources_that_are_too_many_together():
    report = report_of(MAX_REPORTED_DEVICES)
    more = {**report.resources, "example.com/nic": ResourceReport((DeviceGroup(None, True, (("nic", "0"),)),))}
    with pytest.raises(ReportError, match="device IDs"):
        state_of(msgspec.structs.replace(report, resources=more))
