"""How a GPU turns unhealthy or degraded, and what it takes to be healthy again."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.health.machine import LASTING_S, GpuHealth, after_probe, after_xid
from purser.core.health.messages import News, condition_of, news_of
from purser.core.health.policy import XidPolicy
from purser.core.health.signs import DeviceFault, FaultKind, NvLinks, RecoveryAction, RemappedRows, Signs, Slowdown
from purser.core.health.state import HealthState

POLICY = XidPolicy()
PROBES_S, QUIET_S = 10.0, 20.0
QUIET_PROBES = 3
"""At that pace."""
LASTING_PROBES = 1 + int(LASTING_S / PROBES_S)
NOW = itertools.count(step=PROBES_S)
"""Each probe of this file is made so much later than the one before."""
NOTHING_WATCHED = XidPolicy(all_disabled=True)
GOOD = Signs()
TELLS_NONE = Signs(recovery_action=RecoveryAction.NONE)
ENOUGH = (GOOD,) * QUIET_PROBES
TOO_FEW = (GOOD,) * (QUIET_PROBES - 1)


def bad(kind: FaultKind) -> Signs:
    return Signs(fault=DeviceFault(kind, "nvmlDeviceGetMemoryInfo", "no"))


def asking(action: RecoveryAction) -> Signs:
    return Signs(recovery_action=action)


def rows(*, pending: bool = False, failed: bool = False, errors: int | None = None) -> Signs:
    return Signs(remapped_rows=RemappedRows(0, 0, pending, failed), ecc_uncorrected=errors)


def after(health: GpuHealth, *events: Signs | int, policy: XidPolicy = POLICY) -> GpuHealth:
    """The health after probes and Xids."""
    for event in events:
        if isinstance(event, int):
            health = after_xid(health, event, policy)
        else:
            health = after_probe(health, event, policy, next(NOW), QUIET_S)
    return health


def new(*events: Signs | int, policy: XidPolicy = POLICY) -> GpuHealth:
    return after(GpuHealth(), *events, policy=policy)


def test_a_gpu_is_healthy_at_first_and_stays_so_while_its_probes_are_good() -> None:
    assert GpuHealth().takes_pods
    assert new(*ENOUGH) == GpuHealth()
    assert GpuHealth().reason == ""


@pytest.mark.parametrize("kind", list(FaultKind))
def test_a_bad_probe_is_enough_to_be_unhealthy(kind: FaultKind) -> None:
    health = new(bad(kind))
    assert not health.takes_pods
    assert health.reason == f"{kind}: nvmlDeviceGetMemoryInfo: no"


def test_it_takes_several_good_probes_in_a_row_to_recover() -> None:
    health = new(bad(FaultKind.UNKNOWN), *TOO_FEW)
    assert not health.takes_pods
    assert not after(health, bad(FaultKind.UNKNOWN), *TOO_FEW).takes_pods
    assert after(health, GOOD) == GpuHealth()


def test_a_suspect_gpu_is_taken_back_once_its_probes_were_good_for_a_while() -> None:
    health = new(142)
    assert health.state is HealthState.SUSPECT
    assert health.reason == "Xid 142 (NVENC3 error)"
    assert not after(health, *TOO_FEW).takes_pods
    assert not after(health, *TOO_FEW, 142, *TOO_FEW).takes_pods, "a second one restarts the wait"
    assert not after(health, *TOO_FEW, bad(FaultKind.UNKNOWN), *TOO_FEW).takes_pods, "and so does a failed call"
    assert after(health, *ENOUGH) == GpuHealth()


def test_a_suspect_gpu_that_is_probed_more_often_is_not_taken_back_sooner() -> None:
    health = new(142)
    for tenths in range(200):
        health = after_probe(health, GOOD, POLICY, tenths / 10, QUIET_S)
        assert not health.takes_pods
    health = after_probe(health, bad(FaultKind.UNKNOWN), POLICY, 19.95, QUIET_S)
    for seconds in (21.0, 40.9):
        health = after_probe(health, GOOD, POLICY, seconds, QUIET_S)
        assert not health.takes_pods
    assert after_probe(health, GOOD, POLICY, 41.0, QUIET_S) == GpuHealth()


def test_an_enabled_error_of_a_program_recovers_as_any_other() -> None:
    enabled = XidPolicy(enabled=frozenset({13}))
    assert new(13, policy=enabled).state is HealthState.SUSPECT
    assert new(13, *ENOUGH, policy=enabled) == GpuHealth()


def test_an_xid_that_needs_a_reset_outlasts_any_number_of_good_probes() -> None:
    health = new(48, *ENOUGH * 10)
    assert health.state is HealthState.NEEDS_RESET
    assert health.reason == "Xid 48 (double-bit ECC error)"


@pytest.mark.parametrize("evidence", [FaultKind.LOST, FaultKind.GONE, FaultKind.RESET_REQUIRED])
def test_it_ends_when_the_driver_no_longer_reports_the_loss(evidence: FaultKind) -> None:
    health = new(79, bad(evidence))
    assert not after(health, *TOO_FEW).takes_pods
    assert after(health, *ENOUGH) == GpuHealth()


def test_it_ends_when_a_remapping_waits_for_the_reset_no_longer() -> None:
    health = new(95, rows(pending=True), *(rows(pending=True),) * 9)
    assert health.state is HealthState.NEEDS_RESET
    assert after(health, *(rows(),) * QUIET_PROBES).takes_pods


def test_it_ends_when_the_driver_says_that_nothing_is_to_be_done() -> None:
    health = new(119)
    assert not after(health, *(TELLS_NONE,) * len(TOO_FEW)).takes_pods
    assert after(health, *(TELLS_NONE,) * QUIET_PROBES) == new(TELLS_NONE)
    assert not after(health, *(asking(RecoveryAction.GPU_RESET),) * 9).takes_pods


NO_RESETS = [FaultKind.UNKNOWN, FaultKind.NO_PERMISSION, FaultKind.NOT_SUPPORTED, FaultKind.NO_ANSWER]


@pytest.mark.parametrize("other", NO_RESETS)
def test_another_fault_is_no_sign_of_a_reset(other: FaultKind) -> None:
    health = new(79, bad(other), *ENOUGH * 3)
    assert not health.takes_pods
    assert [cause.words for cause in health.causes] == ["Xid 79 (GPU has fallen off the bus)"], "the fault is over"


def test_a_call_that_hung_and_returned_is_no_reset() -> None:
    """The system processor of a GPU that times out (Xid 119) holds up calls, which may come back without a reset."""
    assert not new(bad(FaultKind.NO_ANSWER), 119, *ENOUGH * 3).takes_pods
    assert new(bad(FaultKind.NO_ANSWER), *ENOUGH) == GpuHealth()


def test_a_reset_before_the_xid_does_not_count_for_it() -> None:
    assert not new(bad(FaultKind.LOST), *ENOUGH, 48, *ENOUGH * 3).takes_pods


def test_a_lesser_xid_does_not_hide_a_graver_one() -> None:
    health = new(79, 142)
    assert health.reason.startswith("Xid 79")
    assert not after(health, *ENOUGH * 3).takes_pods


def test_a_graver_xid_replaces_a_lesser_one() -> None:
    health = new(142, 79)
    assert health.reason.startswith("Xid 79")
    assert not after(health, *ENOUGH * 3).takes_pods


def test_a_gpu_out_of_reach_has_one_reason_however_each_call_fails() -> None:
    lost = new(bad(FaultKind.LOST))
    told = {after(lost, *map(bad, kinds)).reason for kinds in ((FaultKind.GONE,), tuple(FaultKind) * 2)}
    assert told == {lost.reason}
    assert after(lost, bad(FaultKind.GONE), *ENOUGH) == GpuHealth()


def test_something_worse_is_reported() -> None:
    health = new(bad(FaultKind.UNKNOWN), bad(FaultKind.RESET_REQUIRED))
    assert health.reason.startswith("reset-required")
    assert after(health, bad(FaultKind.LOST), bad(FaultKind.UNKNOWN)).reason.startswith("gpu-lost")


@pytest.mark.parametrize(
    ("action", "state"),
    [
        (RecoveryAction.NONE, HealthState.HEALTHY),
        (RecoveryAction.GPU_RESET, HealthState.NEEDS_RESET),
        (RecoveryAction.DRAIN_AND_RESET, HealthState.NEEDS_RESET),
        (RecoveryAction.BUS_RESET, HealthState.NEEDS_RESET),
        (RecoveryAction.NODE_REBOOT, HealthState.NEEDS_REBOOT),
        (RecoveryAction.SYSTEM_REBOOT, HealthState.NEEDS_REBOOT),
        (RecoveryAction.DRAIN_P2P, HealthState.SUSPECT),
        (RecoveryAction.RECOVER_IMEX_DOMAIN, HealthState.SUSPECT),
        (RecoveryAction.OTHER, HealthState.SUSPECT),
    ],
)
def test_what_the_driver_asks_for_counts_while_it_does(action: RecoveryAction, state: HealthState) -> None:
    health = new(*(asking(action),) * 5)
    assert health.state is state
    assert after(health, *(TELLS_NONE,) * QUIET_PROBES) == new(TELLS_NONE)


def test_new_uncorrected_errors_degrade_a_gpu_that_remaps_rows() -> None:
    assert new(rows(errors=7), rows(errors=7)).reason == "", "those of before count for nothing"
    health = new(rows(errors=7), rows(errors=8))
    assert (health.state, health.takes_pods) == (HealthState.DEGRADED, True)
    assert after(health, rows(errors=9)).reason == health.reason, "told once, however many they become"
    assert after(health, *(rows(errors=8),) * QUIET_PROBES).reason == ""


def test_uncorrected_errors_of_a_gpu_that_only_retires_pages_need_a_reset_as_their_xid_does() -> None:
    old = Signs(ecc_uncorrected=1)
    health = new(old, *(old,) * 9)
    assert health.state is HealthState.NEEDS_RESET, "also where the agent came after the Xid"
    assert after(health, *(Signs(ecc_uncorrected=0),) * QUIET_PROBES).takes_pods
    assert new(old, policy=XidPolicy(disabled=frozenset({48}))).takes_pods


def test_a_remapping_that_waits_for_a_reset_degrades() -> None:
    health = new(rows(pending=True))
    assert health.state is HealthState.DEGRADED
    assert health.cause is not None
    assert health.cause.advice == "Reset the GPU once no pod holds it"
    assert after(health, *(rows(),) * QUIET_PROBES).reason == ""


def test_a_remapping_that_failed_costs_the_gpu() -> None:
    health = new(*(rows(failed=True, pending=True),) * 9)
    assert (health.state, health.takes_pods) == (HealthState.FAILED, False)
    assert new(rows(failed=True), policy=NOTHING_WATCHED).takes_pods


def test_too_many_errors_in_sram_cost_the_gpu() -> None:
    health = new(Signs(sram_threshold_exceeded=True, ecc_uncorrected=3, remapped_rows=RemappedRows(0, 0, False, False)))
    assert (health.state, health.reason) == (HealthState.FAILED, "too many uncorrectable errors in SRAM")
    assert health.cause is not None
    assert (
        health.cause.advice
        == "Run NVIDIA's field diagnostic, and have the GPU replaced if the diagnostic confirms the fault"
    )
    assert new(Signs(sram_threshold_exceeded=True), policy=NOTHING_WATCHED).takes_pods


def test_a_bank_without_spare_rows_degrades_until_a_remapping_fails_there() -> None:
    health = new(Signs(remapped_rows=RemappedRows(0, 8, pending=False, failed=False, exhausted_banks=1)))
    assert (health.state, health.reason) == (HealthState.DEGRADED, "a memory bank has no spare row left")
    failed = Signs(remapped_rows=RemappedRows(0, 8, pending=False, failed=True, exhausted_banks=1))
    assert after(health, failed).state is HealthState.FAILED
    assert new(failed).reason == "a memory row could not be remapped"


def test_nvlinks_that_went_down_or_report_errors_degrade() -> None:
    links = frozenset(range(12))
    up, down = Signs(nvlinks=NvLinks(links)), Signs(nvlinks=NvLinks(links - {3, 4}, frozenset({3, 4})))
    assert new(down, down).reason == "", "they were never up"
    health = new(up, down)
    assert (health.state, health.reason) == (HealthState.DEGRADED, "2 of 12 NVLinks are down")
    assert after(health, *(down,) * 9).reason
    assert after(health, *(up,) * QUIET_PROBES).reason == ""
    assert new(up, Signs(nvlinks=NvLinks(links - {3, 4}))).reason == "", "what does not tell is not a sign"
    counts = [Signs(nvlinks=NvLinks(links, errors=count)) for count in (5, None, 6, 0)]
    assert new(*counts[:3]).reason == "NVLink errors"
    assert new(counts[0], counts[1], counts[0]).reason == "", "nor is a count that could not be read"
    assert new(counts[0], counts[3]).reason == "", "the driver was reloaded"


@pytest.mark.parametrize("why", list(Slowdown))
def test_a_slow_down_degrades_when_it_lasts(why: Slowdown) -> None:
    slow = Signs(slowdowns=frozenset({why}))
    assert new(*(slow,) * (LASTING_PROBES - 1), GOOD, slow).reason == ""
    health = new(*(slow,) * LASTING_PROBES)
    assert (health.state, health.reason) == (HealthState.DEGRADED, why.value)
    assert after(health, *ENOUGH) == GpuHealth()


def test_what_degrades_is_reported_beside_what_costs_the_gpu_and_after_it() -> None:
    pending = rows(pending=True)
    health = new(pending, 142, pending)
    assert health.reason.startswith("Xid 142")
    assert after(health, *(pending,) * QUIET_PROBES).state is HealthState.DEGRADED


SIGNS = st.builds(
    Signs,
    fault=st.none() | st.builds(DeviceFault, st.sampled_from(FaultKind), st.just("nvml"), st.sampled_from("ab")),
    recovery_action=st.none() | st.sampled_from(RecoveryAction),
    ecc_uncorrected=st.none() | st.integers(0, 2),
    remapped_rows=st.none()
    | st.builds(RemappedRows, st.just(0), st.just(0), st.booleans(), st.booleans(), st.integers(0, 1)),
    sram_threshold_exceeded=st.booleans(),
    nvlinks=st.none()
    | st.builds(
        NvLinks, st.frozensets(st.integers(0, 2)), st.frozensets(st.integers(0, 2)), st.none() | st.integers(0, 2)
    ),
    slowdowns=st.frozensets(st.sampled_from(Slowdown), max_size=1),
)
EVENTS = st.lists(SIGNS | st.sampled_from([12, 31, 45, 48, 63, 79, 94, 119, 142, 144, 151, 154, 999]), max_size=12)
WELL = Signs(recovery_action=RecoveryAction.NONE, ecc_uncorrected=0, remapped_rows=RemappedRows(0, 0, False, False))


@given(EVENTS)
@examples(100)
def test_whatever_happened_a_gpu_that_is_well_again_is_taken_back(events: list[Signs | int]) -> None:
    health = new(*events)
    well = after(health, *(WELL,) * QUIET_PROBES)
    links = {cause.sign for cause in well.causes}
    assert well.takes_pods
    assert not links, "no more than three probes, whatever it was"


@given(EVENTS, st.lists(st.sampled_from([1, 31, 48, 79, 119, 142, 151]), max_size=8))
@examples(50)
def test_xids_that_came_together_may_be_folded_into_one_of_each(events: list[Signs | int], xids: list[int]) -> None:
    health = new(*events)
    assert after(health, *xids) == after(health, *dict.fromkeys(xids))


@given(EVENTS)
@examples(100)
def test_what_is_reported_is_what_is_advertised(events: list[Signs | int]) -> None:
    health, takes_pods, reason = GpuHealth(), True, ""
    for event in events:
        before, health = health, after(health, event)
        news, condition = news_of(before, health), condition_of([("GPU 0", health)])
        assert (news is None) == ((takes_pods, reason) == (health.takes_pods, health.reason))
        if news is not None:
            assert (news.news is News.UNHEALTHY) == (not health.takes_pods)
        assert (condition is None) == (health.reason == "")
        assert condition is None or condition.unhealthy == (not health.takes_pods)
        assert len({cause.sign for cause in health.causes}) == len(health.causes), "bounded, whatever comes"
        takes_pods, reason = health.takes_pods, health.reason


@given(EVENTS, st.sampled_from([FaultKind.LOST, FaultKind.GONE, FaultKind.RESET_REQUIRED]))
@examples(50)
def test_a_probe_that_fails_keeps_pods_off_whatever_was_before(events: list[Signs | int], kind: FaultKind) -> None:
    assert not new(*events, bad(kind)).takes_pods
    assert not new(*events, bad(kind), *TOO_FEW).takes_pods
