"""What only a reset or a reboot ends is known to the agent that starts after this one."""

import structlog
from tests.unit.agent.builders import A, B

from purser.agent.health.memory import HealthMemory
from purser.agent.host.files import temporary_path
from purser.core.health.machine import GpuHealth, after_probe, after_reset, after_xid
from purser.core.health.policy import XidPolicy
from purser.core.health.signs import RecoveryAction, Signs
from purser.core.health.state import HealthState

POLICY, QUIET_S = XidPolicy(), 20.0
SICK, SUSPECT, LOST_ROWS = (after_xid(GpuHealth(), xid, POLICY) for xid in (79, 54, 95))


def probed(health, at, **signs):
    return after_probe(health, Signs(**signs), POLICY, at, QUIET_S)


def test_an_xid_that_needs_a_reset_or_a_reboot_is_known_to_the_next_agent_of_the_same_boot(tmp_path):
    file = tmp_path / "state" / "health.json"
    HealthMemory(file, "boot-1").keep({A: SICK, B: SUSPECT})
    after = HealthMemory(file, "boot-1")
    assert after.recall(A) == SICK
    assert after.recall(B) == GpuHealth()  # it would have come back by itself
    assert HealthMemory(file, "boot-2").recall(A) == GpuHealth()


def test_it_stays_until_the_driver_asks_for_nothing_or_the_gpu_was_reset(tmp_path):
    HealthMemory(tmp_path / "f", "boot-1").keep({A: LOST_ROWS})
    health = HealthMemory(tmp_path / "f", "boot-1").recall(A)
    assert probed(probed(health, 0.0), 1e6).state is HealthState.NEEDS_RESET
    quiet = probed(health, 0.0, recovery_action=RecoveryAction.NONE)
    assert probed(quiet, QUIET_S, recovery_action=RecoveryAction.NONE).takes_pods
    assert probed(probed(after_reset(health), 0.0), QUIET_S).takes_pods


def test_what_is_over_is_forgotten_and_gpus_that_the_driver_has_not_listed_yet_are_not(tmp_path):
    HealthMemory(tmp_path / "f", "boot-1").keep({A: SICK, B: SICK})
    second = HealthMemory(tmp_path / "f", "boot-1")
    second.recall(A)
    second.keep({A: after_reset(SICK)})
    third = HealthMemory(tmp_path / "f", "boot-1")
    assert (third.recall(A), third.recall(B)) == (GpuHealth(), SICK)
    third.keep({A: GpuHealth()})  # B is listed no more: whatever comes back has been away
    assert HealthMemory(tmp_path / "f", "boot-1").recall(B) == GpuHealth()


def test_an_agent_that_is_killed_as_it_writes_leaves_the_file_before(tmp_path):
    file = tmp_path / "f"
    HealthMemory(file, "boot-1").keep({A: SICK})
    temporary_path(file).write_bytes(file.read_bytes()[:20])
    after = HealthMemory(file, "boot-1")
    assert after.recall(A) == SICK
    after.keep({A: SICK, B: LOST_ROWS})
    assert HealthMemory(file, "boot-1").recall(B) == LOST_ROWS


def test_a_file_that_is_not_usable_is_reported_and_replaced(tmp_path):
    file = tmp_path / "f"
    file.write_text('{"boot_id": "boot-1", "xids": [{')
    with structlog.testing.capture_logs() as logs:
        memory = HealthMemory(file, "boot-1")
    assert [each["log_level"] for each in logs] == ["warning"]
    assert memory.recall(A) == GpuHealth()
    memory.keep({A: SICK})
    assert HealthMemory(file, "boot-1").recall(A) == SICK


def test_nothing_is_written_without_a_boot_or_news(tmp_path):
    HealthMemory(tmp_path / "f", "").keep({A: SICK})
    memory = HealthMemory(tmp_path / "f", "boot-1")
    memory.keep({A: GpuHealth()})
    assert not (tmp_path / "f").exists()
    memory.keep({A: SICK})
    (tmp_path / "f").unlink()
    memory.keep({A: SICK, B: SUSPECT})
    assert not (tmp_path / "f").exists()
