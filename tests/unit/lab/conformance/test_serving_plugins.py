"""The kit against a plugin that serves already, with and without kubelet's folder."""

import asyncio
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from tests.unit.lab.conformance.tiny import PLUGIN

from purser.lab.conformance import CannotRun, CheckOutcome, Settings, run, select
from purser.lab.conformance.kubelet import ConformanceKubelet

pytestmark = pytest.mark.processes

TIMEOUT_S = 20.0


@pytest.fixture
def folder():
    """Short: a unix socket's path has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="pc"))
    yield path
    shutil.rmtree(path)


@contextlib.asynccontextmanager
async def serving(folder, *arguments):
    """A plugin whose kubelet has gone away."""
    kubelet = ConformanceKubelet(folder, TIMEOUT_S)
    await kubelet.start()
    plugin = await asyncio.create_subprocess_exec(sys.executable, PLUGIN, "--dir", folder, *arguments)
    try:
        await kubelet.registered(0)
        await kubelet.stop()
        yield folder / "thing.sock"
    finally:
        with contextlib.suppress(ProcessLookupError):
            plugin.kill()
        await plugin.wait()


async def checked(socket, *only, **settings):
    report = await run(Settings(socket=socket, timeout_s=TIMEOUT_S, observe_s=0.1, **settings), select(only))
    return {verdict.check.id: (verdict.outcome, verdict.reason) for verdict in report.verdicts}


async def test_a_serving_plugin_is_checked_but_for_registration_and_process_and_the_report_says_why(folder):
    async with serving(folder) as socket:
        told = await checked(socket)
    assert not [check for check, (outcome, _) in told.items() if outcome is CheckOutcome.FAILED], told
    skipped = {check.partition("-")[0] for check, (outcome, _) in told.items() if outcome is CheckOutcome.SKIPPED}
    assert skipped == {"register", "reregister", "process", "health", "allocate", "list"}
    assert "set --folder to test registration" in told["register-version"][1]
    assert "set --folder to test registration" in told["reregister-repeated"][1]
    assert "specify the plugin's command" in told["process-ends"][1]
    assert told["allocate-idempotent"][0] is CheckOutcome.PASSED


@pytest.mark.gate
async def test_with_kubelets_folder_a_serving_plugin_must_register_too(folder):
    async with serving(folder) as socket:
        told = await checked(socket, "register*", "reregister*", "list", folder=folder)
    assert {outcome for outcome, _ in told.values()} == {CheckOutcome.PASSED}, told


@pytest.mark.gate
async def test_a_serving_plugin_that_does_not_register_is_checked_all_the_same(folder):
    async with serving(folder, "--wrong", "deaf") as socket:
        settings = Settings(socket=socket, folder=folder, timeout_s=3)
        report = await run(settings, select(["register*", "list", "allocate"]))
    told = {verdict.check.id: verdict.outcome for verdict in report.verdicts}
    assert told["register"] is CheckOutcome.FAILED
    assert told["register-version"] is CheckOutcome.SKIPPED
    assert told["list"] is told["allocate"] is CheckOutcome.PASSED


@pytest.mark.gate
async def test_a_serving_plugin_that_dies_cannot_be_started_again_and_the_rest_is_skipped(folder):
    async with serving(folder, "--wrong", "dies") as socket:
        report = await run(Settings(socket=socket, timeout_s=3), select(["allocate-unknown-id", "limits*"]))
    told = {verdict.check.id: (verdict.outcome, verdict.reason) for verdict in report.verdicts}
    assert told["allocate-unknown-id"][0] is CheckOutcome.FAILED
    assert told["limits-list"] == (
        CheckOutcome.SKIPPED,
        f"the plugin can no longer be reached: no process is listening on {socket}",
    )


async def test_a_folder_with_a_living_kubelet_is_left_alone(folder):
    kubelet = ConformanceKubelet(folder, TIMEOUT_S)
    await kubelet.start()
    with pytest.raises(CannotRun, match="probably a kubelet"):
        await run(Settings(command=("true",), folder=folder), select())
    assert kubelet.socket.is_socket()
    await kubelet.stop()


async def test_a_socket_that_nobody_serves_cannot_be_checked(folder):
    with pytest.raises(CannotRun, match="no process is listening on"):
        await run(Settings(socket=folder / "gone.sock"), select())


async def test_a_program_that_is_not_there_cannot_be_checked():
    with pytest.raises(CannotRun, match="cannot start /no/such/plugin"):
        await run(Settings(command=("/no/such/plugin",)), select())
