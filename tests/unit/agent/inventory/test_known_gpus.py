"""Which GPU it is that cannot be read any more, by what the driver listed before."""

import structlog
from msgspec.structs import replace
from tests.unit.agent.builders import A, B

from purser.agent.inventory.known_gpus import KnownGpus
from purser.agent.nvml import Gpu, MigMode
from purser.core.device.gpus import NodeMigDevice
from purser.core.health.signs import DeviceFault, FaultKind

LOST = DeviceFault(FaultKind.LOST, "nvmlDeviceGetHandleByIndex", "GPU is lost")
CUT = NodeMigDevice(uuid="MIG-1", profile="1g.5gb", memory_mib=4864)
FIRST = Gpu(index=0, uuid=A, name="A100", minor=0, mig=MigMode(enabled=True, pending=True), migs=(CUT,))
SECOND = Gpu(index=1, uuid=B, name="A100", minor=1, watches_xids=True)
UNREADABLE = Gpu(index=1, fault=LOST)


def next_agent(folder, boot="boot"):
    return KnownGpus(folder / "f", boot)


def known_to_the_agent_before(folder, *gpus, boot="boot"):
    next_agent(folder, boot).store(gpus)


def test_it_has_the_facts_that_it_had_and_the_fault_of_now(tmp_path):
    known_to_the_agent_before(tmp_path, FIRST, SECOND)
    found = next_agent(tmp_path).identify((FIRST, UNREADABLE))
    assert found == (FIRST, replace(SECOND, fault=LOST, watches_xids=False))
    assert next_agent(tmp_path).identify((replace(UNREADABLE, index=0), SECOND))[0] == replace(FIRST, fault=LOST)


def test_where_the_driver_counts_fewer_or_another_one_has_the_identity_nobody_knows(tmp_path):
    known_to_the_agent_before(tmp_path, FIRST, SECOND)
    assert next_agent(tmp_path).identify((replace(UNREADABLE, index=0),)) == (replace(UNREADABLE, index=0),)
    known_to_the_agent_before(tmp_path, FIRST, SECOND)
    known_to_the_agent_before(tmp_path)
    assert next_agent(tmp_path).identify((FIRST, UNREADABLE))[1].uuid == B
    moved = (replace(SECOND, index=0), UNREADABLE)
    assert next_agent(tmp_path).identify(moved) == moved
    third = replace(SECOND, index=2, uuid="GPU-c")
    known_to_the_agent_before(tmp_path, FIRST, SECOND, third)
    exchanged = (replace(SECOND, index=0), UNREADABLE, third)
    assert next_agent(tmp_path).identify(exchanged) == exchanged, "indexes mean other GPUs now"


def test_after_a_reboot_or_without_its_sign_nothing_is_known(tmp_path):
    known_to_the_agent_before(tmp_path, FIRST, SECOND)
    assert next_agent(tmp_path, "another").identify((FIRST, UNREADABLE))[1] == UNREADABLE
    known_to_the_agent_before(tmp_path / "none", FIRST, SECOND, boot="")
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_not_usable_is_reported_and_replaced(tmp_path):
    (tmp_path / "f").write_text('{"boot_id": "boot", "gpus": [{')
    with structlog.testing.capture_logs() as logs:
        known = next_agent(tmp_path)
    assert [each["log_level"] for each in logs] == ["warning"]
    known.store((FIRST, SECOND))
    assert next_agent(tmp_path).identify((FIRST, UNREADABLE))[1].uuid == B
    written = (tmp_path / "f").stat().st_mtime_ns
    known.store((FIRST, SECOND))
    assert (tmp_path / "f").stat().st_mtime_ns == written
