"""A GPU's health as a value that Xids and probes change. Pure: no clock, no driver. Times are monotonic seconds.

What is wrong with a GPU is a set of causes, at most one for each `Sign`; the most severe one is its state. A cause is
added at once, except for slow-downs and missing NVLink domains, which count when they last. Unlike in NVIDIA's device
plugin, where one transient error costs the GPU until the plugin restarts, a cause is removed:

- once probes have shown neither it nor anything else that keeps pods off for a while (``quiet_s``), so that a flapping
  GPU stays unavailable, however often it is probed meanwhile; and
- where an Xid needs a reset or a reboot, only if besides that the driver says that no recovery is asked for, or showed
  in between what a reset leaves behind: the GPU was lost, gone or in need of a reset, or a row remapping that waited
  for the reset waits no longer. NVML counts no resets. A driver that shows nothing of it (one before R570 that kept
  answering) keeps the GPU out until the node reboots, or people say that the GPU was reset (SIGHUP to the agent).

The first failure stays the reason until a more severe one is found: a GPU out of reach fails differently with every
call, and is reported once.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from purser.core.health.catalogue import action_of, describe
from purser.core.health.fabric import FABRIC_ADVICE
from purser.core.health.policy import XidPolicy
from purser.core.health.signs import NvLinks, RecoveryAction, Signs
from purser.core.health.state import ADVICE, HealthState, after_fault, after_recovery_action
from purser.core.wording import portion

LASTING_S = 60.0
"""How long probes have to show a slow-down until it counts: short ones keep a GPU under full load within its limits. A
GPU that its neighbours' NVLink domain lacks has the same time: after a boot they join one after another."""

RESET_HINT = "The driver does not report resets. After a reset, run pkill -HUP -f 'purser agent run' on the node"
"""For drivers before R570."""

RECOVERY_ADVICE = (
    "Carry out this recovery action (nvidia-smi -q shows it); the GPU is opened to new pods again once the driver no "
    "longer asks for it"
)
"""For actions that need neither a reset nor a reboot."""

FIELD_DIAGNOSTIC = "Run NVIDIA's field diagnostic, and have the GPU replaced if the diagnostic confirms the fault"
"""What meets NVIDIA's criteria for a replacement: "RMA Policy" of
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/rma-policy-thresholds-for-row-remapping.html, which has also the
number of spare rows of a bank."""

DOUBLE_BIT_XID, REMAP_FAILED_XID = 48, 64
"""What counters and flags say as well; who turns these Xids off means them, too."""


class Sign(StrEnum):
    """Where a cause was seen."""

    XID = "xid"
    CALL = "call"
    RECOVERY_ACTION = "recovery-action"
    ECC = "ecc"
    SRAM = "sram"
    REMAPPED_ROWS = "remapped-rows"
    SPARE_ROWS = "spare-rows"
    NVLINK = "nvlink"
    FABRIC = "fabric"
    CLOCKS = "clocks"


class HealthCause(msgspec.Struct, frozen=True):
    """One thing that is wrong with a GPU."""

    sign: Sign
    state: HealthState
    words: str
    """For people, and always the same while it lasts."""
    advice: str = ""
    """What is to be done, in a sentence."""
    until_reset: bool = False
    """Whether it takes more than silence to end it."""
    reset_seen: bool = False
    absent_since: float | None = None
    """The first probe that showed nothing of it, nor of anything else that keeps pods off; None: the last one did."""


class ProbeHistory(msgspec.Struct, frozen=True):
    """What earlier probes showed, to see what changed."""

    ecc_uncorrected: int | None = None
    remaps_rows: bool = False
    """Whether this GPU has ever reported remapped rows: it stays usable after uncorrected errors."""
    remapping_pending: bool = False
    reports_recovery_action: bool = False
    """Whether the driver has ever said which recovery action the GPU requires, be it none."""
    nvlinks_up: frozenset[int] = frozenset()
    """Those that have ever been up."""
    nvlink_errors: int | None = None
    slow_since: float | None = None
    """The first probe of those in a row that showed a slow-down; None: the last one did not."""
    isolated_since: float | None = None
    """The same of probes that showed it out of its neighbours' NVLink domain."""


class GpuHealth(msgspec.Struct, frozen=True):
    """How well a GPU is, and why."""

    causes: tuple[HealthCause, ...] = ()
    """In the order in which they came."""
    seen: ProbeHistory = ProbeHistory()

    @property
    def cause(self) -> HealthCause | None:
        """The most severe cause, the first of equal ones; None while the GPU is healthy."""
        return max(self.causes, key=lambda cause: cause.state.severity, default=None)

    @property
    def state(self) -> HealthState:
        """That of the most severe cause."""
        return HealthState.HEALTHY if self.cause is None else self.cause.state

    @property
    def takes_pods(self) -> bool:
        """Whether the GPU is to be advertised as healthy."""
        return self.state.takes_pods

    @property
    def fails_calls(self) -> bool:
        """Whether calls on the GPU failed lately: the driver may have to be reopened to see it again."""
        return any(cause.sign is Sign.CALL for cause in self.causes)

    @property
    def reason(self) -> str:
        """What is wrong, for people; empty while the GPU is healthy."""
        return "" if self.cause is None else self.cause.words


def after_xid(health: GpuHealth, xid: int, policy: XidPolicy) -> GpuHealth:
    """The health after the driver reported an Xid."""
    state = policy.state_after(xid)
    if state is HealthState.HEALTHY:
        return health
    new = HealthCause(
        Sign.XID,
        state,
        describe(xid),
        _advice(xid, state, reports_recovery_action=health.seen.reports_recovery_action),
        until_reset=state.severity >= HealthState.NEEDS_RESET.severity,
        reset_seen=any(_implies_reset(cause) for cause in health.causes),
    )
    others = [cause for cause in health.causes if cause.sign is not Sign.XID]
    known = next((cause for cause in health.causes if cause.sign is Sign.XID), None)
    if known is None:
        return msgspec.structs.replace(health, causes=(*health.causes, new))
    if known.state.severity < state.severity:
        return msgspec.structs.replace(health, causes=(*others, new))
    is_as_severe = known.state is state
    merged = msgspec.structs.replace(
        known, absent_since=None, reset_seen=new.reset_seen if is_as_severe else known.reset_seen
    )
    return _with_cause(health, merged)


def after_probe(health: GpuHealth, signs: Signs, policy: XidPolicy, now: float, quiet_s: float) -> GpuHealth:
    """The health after one more probe. ``quiet_s``: for how long a cause must not be seen any more to be over."""
    seen = _observe(health.seen, signs, now)
    shown = {cause.sign: cause for cause in _causes(health.seen, seen, signs, policy, now)}
    keeps_pods_off = any(not cause.state.takes_pods for cause in shown.values())
    reset_seen = any(map(_implies_reset, shown.values())) or (
        health.seen.remapping_pending and not seen.remapping_pending
    )
    causes = []
    for cause in health.causes:
        cause = msgspec.structs.replace(cause, reset_seen=cause.reset_seen or reset_seen)
        again = shown.pop(cause.sign, None)
        if again is not None:
            causes.append(_if_more_severe(cause, again))
            continue
        since = now if cause.absent_since is None else cause.absent_since
        may_end = not cause.until_reset or cause.reset_seen or signs.recovery_action is RecoveryAction.NONE
        if keeps_pods_off or now < since + quiet_s or not may_end:
            causes.append(msgspec.structs.replace(cause, absent_since=None if keeps_pods_off else since))
    return GpuHealth((*causes, *shown.values()), seen)


def after_reset(health: GpuHealth) -> GpuHealth:
    """The health once the GPU was reset: what only a reset ends may end when probes show nothing more of it."""
    return msgspec.structs.replace(
        health, causes=tuple(msgspec.structs.replace(cause, reset_seen=True) for cause in health.causes)
    )


def _with_cause(health: GpuHealth, cause: HealthCause) -> GpuHealth:
    """The same with this cause in place of that of its sign."""
    causes = tuple(cause if each.sign is cause.sign else each for each in health.causes)
    return msgspec.structs.replace(health, causes=causes)


def _if_more_severe(before: HealthCause, now: HealthCause) -> HealthCause:
    """The reason of a sign that persists: it is not reported again until it becomes worse."""
    if now.state.severity > before.state.severity:
        return now
    if now.sign is Sign.FABRIC and now.words != before.words:  # a registration that goes on, or fails
        return now
    return msgspec.structs.replace(before, absent_since=None)


def _implies_reset(cause: HealthCause) -> bool:
    """Whether a GPU with this cause will have been reset when it answers and asks for nothing again."""
    return cause.sign in (Sign.CALL, Sign.RECOVERY_ACTION) and cause.state.severity >= HealthState.NEEDS_RESET.severity


def _advice(xid: int, state: HealthState, *, reports_recovery_action: bool) -> str:
    """For an Xid that a GPU may recover from, NVIDIA's own word: it is for people to act on. Where the driver shows
    nothing of a reset, people have to say that there was one."""
    action = action_of(xid)
    if state is HealthState.NEEDS_RESET and not reports_recovery_action:
        return f"{ADVICE[state]}. {RESET_HINT}"
    if state is HealthState.SUSPECT and action:
        return f"{ADVICE[state]}; NVIDIA's catalogue recommends {action}"
    return ADVICE[state]


def _observe(before: ProbeHistory, signs: Signs, now: float) -> ProbeHistory:
    """What is known after a probe. A counter that was not read stays as it was."""
    rows, links = signs.remapped_rows, signs.nvlinks
    slow_since = now if before.slow_since is None else before.slow_since
    isolated_since = now if before.isolated_since is None else before.isolated_since
    return ProbeHistory(
        ecc_uncorrected=before.ecc_uncorrected if signs.ecc_uncorrected is None else signs.ecc_uncorrected,
        remaps_rows=before.remaps_rows or rows is not None,
        remapping_pending=before.remapping_pending if rows is None else rows.pending,
        reports_recovery_action=before.reports_recovery_action or signs.recovery_action is not None,
        nvlinks_up=before.nvlinks_up if links is None else before.nvlinks_up | links.up,
        nvlink_errors=before.nvlink_errors if links is None or links.errors is None else links.errors,
        slow_since=slow_since if signs.slowdowns else None,
        isolated_since=isolated_since if signs.missing_domain else None,
    )


def _causes(
    before: ProbeHistory, seen: ProbeHistory, signs: Signs, policy: XidPolicy, now: float
) -> Iterator[HealthCause]:
    """What this probe shows to be wrong."""
    if signs.fault is not None:
        state = after_fault(signs.fault.kind)
        yield HealthCause(Sign.CALL, state, str(signs.fault), ADVICE[state])
    asked = signs.recovery_action
    if asked not in (None, RecoveryAction.NONE):
        state = after_recovery_action(asked)
        words = f"the driver asks for recovery: {asked.name.lower().replace('_', ' ')}"
        advice = RECOVERY_ADVICE if state is HealthState.SUSPECT else ADVICE[state]
        yield HealthCause(Sign.RECOVERY_ACTION, state, words, advice)
    yield from _memory_causes(before, seen, signs, policy)
    if signs.nvlinks is not None:
        yield from _nvlink_causes(before, seen, signs.nvlinks)
    if seen.isolated_since is not None and now >= seen.isolated_since + LASTING_S:
        yield HealthCause(Sign.FABRIC, HealthState.DEGRADED, signs.missing_domain, FABRIC_ADVICE)
    if seen.slow_since is not None and now >= seen.slow_since + LASTING_S:
        words = " and ".join(sorted(signs.slowdowns))
        yield HealthCause(Sign.CLOCKS, HealthState.DEGRADED, words, "Check the node's cooling and power supply")


def _memory_causes(before: ProbeHistory, seen: ProbeHistory, signs: Signs, policy: XidPolicy) -> Iterator[HealthCause]:
    """A GPU that remaps rows contains most errors and goes on; one that only retires pages needs the reset that Xid 48
    asks for, for as long as the counter of errors since the driver was loaded is not back at zero."""
    degraded = HealthState.DEGRADED
    double_bit = policy.state_after(DOUBLE_BIT_XID)
    if signs.ecc_uncorrected and not seen.remaps_rows and not double_bit.takes_pods:
        yield HealthCause(Sign.ECC, double_bit, "uncorrected ECC errors", ADVICE[double_bit])
    elif _has_grown(before.ecc_uncorrected, signs.ecc_uncorrected):
        yield HealthCause(Sign.ECC, degraded, "new uncorrected ECC errors", "Have the GPU replaced if they recur")
    failed = HealthState.FAILED
    if signs.sram_threshold_exceeded and not double_bit.takes_pods:
        yield HealthCause(Sign.SRAM, failed, "too many uncorrectable errors in SRAM", FIELD_DIAGNOSTIC)
    rows = signs.remapped_rows
    if rows is None:
        return
    if rows.failed and not policy.state_after(REMAP_FAILED_XID).takes_pods:
        yield HealthCause(Sign.REMAPPED_ROWS, failed, "a memory row could not be remapped", FIELD_DIAGNOSTIC)
    elif rows.pending:
        words = "a memory row will be remapped at the next reset"
        yield HealthCause(Sign.REMAPPED_ROWS, degraded, words, "Reset the GPU once no pod holds it")
    if rows.exhausted_banks and not rows.failed:
        words = "a memory bank has no spare row left"
        yield HealthCause(
            Sign.SPARE_ROWS,
            degraded,
            words,
            "Plan a replacement, because another error in that bank makes the GPU unusable",
        )


def _nvlink_causes(before: ProbeHistory, seen: ProbeHistory, links: NvLinks) -> Iterator[HealthCause]:
    advice = "Check the NVLinks with nvidia-smi nvlink"
    if lost_links := links.down & seen.nvlinks_up:
        words = f"{portion(len(lost_links), len(seen.nvlinks_up), 'NVLink')} down"
        yield HealthCause(Sign.NVLINK, HealthState.DEGRADED, words, advice)
    elif _has_grown(before.nvlink_errors, seen.nvlink_errors):
        yield HealthCause(Sign.NVLINK, HealthState.DEGRADED, "NVLink errors", advice)


def _has_grown(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now > before
