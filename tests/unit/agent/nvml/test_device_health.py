"""How a device turns unhealthy, and what it takes to be healthy again."""

import pytest

from purser.agent.nvml import DeviceFault, DeviceHealth, DeviceReading, FaultKind, XidPolicy
from purser.agent.nvml.health import GOOD_READINGS_TO_RECOVER

POLICY = XidPolicy()
GOOD = DeviceReading(uuid="GPU-0")


def bad(kind: FaultKind) -> DeviceReading:
    return DeviceReading(uuid="GPU-0", fault=DeviceFault(kind, "nvmlDeviceGetMemoryInfo", "no"))


def after(health: DeviceHealth, *readings: DeviceReading) -> DeviceHealth:
    for reading in readings:
        health = health.after_reading(reading)
    return health


ENOUGH = (GOOD,) * GOOD_READINGS_TO_RECOVER
TOO_FEW = (GOOD,) * (GOOD_READINGS_TO_RECOVER - 1)


def test_a_device_is_healthy_at_first_and_stays_so_while_its_readings_are_good() -> None:
    assert DeviceHealth().healthy
    assert after(DeviceHealth(), *ENOUGH) == DeviceHealth()
    assert DeviceHealth().reason == ""


@pytest.mark.parametrize("kind", list(FaultKind))
def test_a_bad_reading_is_enough_to_be_unhealthy(kind: FaultKind) -> None:
    health = after(DeviceHealth(), bad(kind))
    assert not health.healthy
    assert health.reason == f"{kind}: nvmlDeviceGetMemoryInfo: no"


def test_it_takes_several_good_readings_in_a_row_to_recover() -> None:
    health = after(DeviceHealth(), bad(FaultKind.UNKNOWN), *TOO_FEW)
    assert not health.healthy
    assert not after(health, bad(FaultKind.UNKNOWN), *TOO_FEW).healthy
    assert after(health, GOOD).healthy


def test_an_application_error_changes_nothing() -> None:
    assert DeviceHealth().after_xid(31, POLICY) == DeviceHealth()


def test_an_xid_that_recovers_costs_the_device_until_its_probes_were_good_for_a_while() -> None:
    health = DeviceHealth().after_xid(94, POLICY)
    assert not health.healthy
    assert health.reason == "Xid 94 (contained memory error)"
    assert not after(health, *TOO_FEW).healthy
    assert after(health, *ENOUGH) == DeviceHealth()


def test_a_second_xid_starts_the_wait_anew() -> None:
    health = after(DeviceHealth().after_xid(94, POLICY), *TOO_FEW).after_xid(94, POLICY)
    assert not after(health, *TOO_FEW).healthy
    assert after(health, *ENOUGH).healthy


def test_an_enabled_application_error_recovers_as_any_other() -> None:
    health = DeviceHealth().after_xid(13, XidPolicy(enabled=frozenset({13})))
    assert not health.healthy
    assert after(health, *ENOUGH).healthy


def test_an_until_reset_xid_outlasts_any_number_of_good_readings() -> None:
    health = after(DeviceHealth().after_xid(48, POLICY), *ENOUGH * 10)
    assert not health.healthy
    assert health.reason == "Xid 48 (double bit ECC error)"


@pytest.mark.parametrize("evidence", [FaultKind.LOST, FaultKind.GONE, FaultKind.RESET_REQUIRED])
def test_an_until_reset_xid_ends_when_the_driver_said_lost_and_says_it_no_longer(evidence: FaultKind) -> None:
    health = after(DeviceHealth().after_xid(79, POLICY), bad(evidence))
    assert not after(health, *TOO_FEW).healthy
    assert after(health, *ENOUGH) == DeviceHealth()


@pytest.mark.parametrize("other", [FaultKind.UNKNOWN, FaultKind.NO_PERMISSION, FaultKind.NOT_SUPPORTED])
def test_another_fault_is_no_sign_of_a_reset(other: FaultKind) -> None:
    health = after(DeviceHealth().after_xid(79, POLICY), bad(other), *ENOUGH * 3)
    assert not health.healthy
    assert health.reason == "Xid 79 (GPU has fallen off the bus)", "the fault is over, the Xid is not"


def test_the_order_of_loss_and_xid_does_not_matter() -> None:
    lost_first = after(DeviceHealth(), bad(FaultKind.LOST)).after_xid(79, POLICY)
    assert not lost_first.healthy
    assert after(lost_first, *ENOUGH).healthy


def test_a_reset_before_the_xid_does_not_count_for_it() -> None:
    recovered_then_hit = after(DeviceHealth(), bad(FaultKind.LOST), *ENOUGH).after_xid(48, POLICY)
    assert not after(recovered_then_hit, *ENOUGH * 3).healthy


def test_a_lesser_xid_does_not_hide_a_graver_one() -> None:
    health = DeviceHealth().after_xid(79, POLICY).after_xid(94, POLICY)
    assert health.xid == 79
    assert not after(health, *ENOUGH * 3).healthy


def test_a_graver_xid_replaces_a_lesser_one() -> None:
    health = DeviceHealth().after_xid(94, POLICY).after_xid(79, POLICY)
    assert health.xid == 79
    assert not after(health, *ENOUGH * 3).healthy


def test_a_card_out_of_reach_has_one_reason_however_each_call_fails() -> None:
    lost = after(DeviceHealth(), bad(FaultKind.LOST))
    told = {after(lost, *(bad(kind) for kind in kinds)).reason for kinds in ((FaultKind.GONE,), tuple(FaultKind) * 2)}
    assert told == {lost.reason}
    assert after(lost, bad(FaultKind.GONE), *ENOUGH) == DeviceHealth()


def test_something_worse_is_told() -> None:
    health = after(DeviceHealth(), bad(FaultKind.UNKNOWN), bad(FaultKind.RESET_REQUIRED))
    assert health.reason.startswith("reset-required")
    assert after(health, bad(FaultKind.LOST), bad(FaultKind.UNKNOWN)).reason.startswith("gpu-lost")
