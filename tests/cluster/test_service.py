"""What ends by itself is started again; what is stopped stays away."""

import os
import signal
import time
from pathlib import Path

import pytest

from purser.lab.controlplane.process import ProcessStartError
from tests import waiting

from .kubernetes import service
from .kubernetes.service import Service


@pytest.fixture(autouse=True)
def nothing_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ended", [])


def wait_for_another(program: Service, than: int | None) -> int:
    while not waiting.is_over():
        if (pid := program.pid) not in (None, than):
            return pid
        time.sleep(0.05)
    raise AssertionError("it was not started again")


@pytest.mark.parametrize("end", [Service.stop, Service.kill])
def test_a_service_comes_back_until_it_is_stopped(tmp_path: Path, end) -> None:
    program = Service("sleeper", ["sleep", "1000"], tmp_path)
    program.start()
    for times in (1, 2):
        before = program.pid
        os.kill(before, signal.SIGKILL)
        wait_for_another(program, before)
        assert service.ended == ["sleeper with status -9"] * times
    end(program)
    time.sleep(1.5 * service.PAUSE_S)
    assert program.pid is None
    program.start()
    program.kill()


def test_one_that_cannot_start_says_so(tmp_path: Path) -> None:
    program = Service("broken", ["sh", "-c", "echo no such thing; exit 3"], tmp_path)
    program.start()
    with pytest.raises(ProcessStartError, match="no such thing"):
        program.wait_ready(lambda: False)
    program.stop()
