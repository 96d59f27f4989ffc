"""What KUBEBUILDER_ASSETS may name, and what becomes of programs that do not start. The programs are shell scripts."""

import asyncio
import os

import pytest
from tests.unit.cli.typed import here

from purser.lab.cluster import Lab
from purser.lab.controlplane.process import ProcessStartError
from purser.lab.controlplane.programs import Programs
from purser.lab.settings import LabSettings, node_choices

pytestmark = pytest.mark.processes

VERSION = 'echo "Kubernetes v1.34.2-k3s1"'


def program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture(autouse=True)
def quiet_grpc(monkeypatch):
    """As the command says in its own environment, which is that of the tests here."""
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")


@pytest.fixture
def folder(tmp_path):
    program(tmp_path, "etcd", 'echo "no disk left"; exit 1')
    program(tmp_path, "kube-apiserver", VERSION)
    return tmp_path


def test_etcd_and_an_api_server_are_enough(folder):
    found = Programs.find(folder)
    assert found.version == (1, 34)
    assert not found.has("kube-scheduler")
    program(folder, "kube-scheduler", VERSION)
    assert found.has("kube-scheduler")
    assert found.path("kube-scheduler") == str(folder / "kube-scheduler")


@pytest.mark.parametrize("absent", ["etcd", "kube-apiserver"])
def test_a_folder_without_one_of_them_is_refused_by_name(folder, absent):
    (folder / absent).unlink()
    with pytest.raises(ValueError, match=f"does not contain {absent}: .*unset"):
        Programs.find(folder)


@pytest.mark.parametrize(
    ("script", "message"),
    [("echo 7", "did not print a version: '7"), ("exit 3", "cannot run .*--version: .*status 3")],
)
def test_an_api_server_without_a_version_is_refused(folder, script, message):
    program(folder, "kube-apiserver", script)
    with pytest.raises(ValueError, match=message):
        Programs.find(folder)


def lab(folder, state):
    return Lab(LabSettings(node_choices(["t4-4"]), programs=Programs.find(folder), folder=state))


async def test_a_program_that_does_not_start_fails_the_lab_with_its_last_words(folder, tmp_path):
    with pytest.raises(ProcessStartError, match=r"(?s)etcd exited during startup. .*etcd\.log:\nno disk left"):
        async with lab(folder, tmp_path / "lab"):
            pytest.fail("it started")


async def test_a_lab_that_is_stopped_while_it_starts_leaves_no_process_behind(folder, tmp_path):
    told = tmp_path / "pid"
    told.touch()
    # Only what the shell does itself: a child of its own would be init's to bury, and in the group until then.
    program(folder, "etcd", f"echo $$ > {told}; exec sleep 1000")

    async def run():
        async with lab(folder, tmp_path / "lab"):
            pytest.fail("it started")

    task = asyncio.create_task(run())
    async with asyncio.timeout(60):
        while not told.read_text().endswith("\n"):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.killpg(int(told.read_text()), 0)


@pytest.mark.parametrize(("absent", "code", "words"), [("etcd", 2, "does not contain etcd"), ("", 1, "no disk left")])
def test_the_command_says_what_is_wrong_without_a_traceback(folder, absent, code, words, monkeypatch):
    if absent:
        (folder / absent).unlink()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    found, _, err = here("lab", "--node", "t4-4")
    assert found == code
    assert words in err
    assert "Traceback" not in err
