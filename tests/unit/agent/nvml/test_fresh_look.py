"""A look by another process that has been hanging in the driver, where not even SIGKILL ends it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from purser.agent.nvml import fresh
from purser.agent.nvml.driver import DriverError
from purser.agent.nvml.fresh import DriverProbe

pytestmark = pytest.mark.processes


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that SIGKILL does not end, until the test is over."""
    kill, found = subprocess.Popen.kill, list[subprocess.Popen[bytes]]()
    monkeypatch.setattr(fresh, "LOOK_TIMEOUT_S", 0.05)
    monkeypatch.setattr(fresh, "_KILL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: found.append(process))
    yield found
    for each in found:
        kill(each)
        each.wait()


def test_a_process_that_cannot_be_killed_holds_up_nobody_and_gets_no_second_beside_it(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    program = tmp_path / "hangs.py"
    program.write_text("import time; time.sleep(600)")
    look = DriverProbe("libnvidia-ml.so.1", program)
    with pytest.raises(DriverError, match="no answer within"):
        look()
    with pytest.raises(DriverError, match=f"process {started[0].pid} has been hanging in the driver"):
        look()
    assert len(started) == 1
