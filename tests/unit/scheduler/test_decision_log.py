"""The log of a scheduler: files of bounded size and number, and decisions that go on whatever becomes of the log."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs
from tests.unit.scheduler.binding.test_binder import LOST, Faulty, refuse_reading_of
from tests.unit.scheduler.extender_world import eventually, replica, server

from purser.core.decisions import DecisionLogError, Reader, Replayer
from purser.core.decisions.records import (
    LOG_FORMAT,
    FreeResourcesTaken,
    GrantReleased,
    GrantTaken,
    Moment,
    NodesJudged,
    PodBound,
    PodGone,
    PodPlaced,
    Record,
    SchedulingStart,
)
from purser.core.model import GrantState
from purser.core.placement import PolicySettings
from purser.kube.resources import PODS
from purser.scheduler.decision_log import LogFiles, files
from purser.scheduler.metrics import SchedulerMetrics

pytestmark = pytest.mark.processes

START = SchedulingStart(LOG_FORMAT, "", PolicySettings(), 0.0)


def records(path: Path) -> list[Record]:
    return list(Reader(io.BytesIO(path.read_bytes()).read))


def until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def counted(metrics: SchedulerMetrics, outcome: str) -> float:
    return metrics.registry.get_sample_value("purser_scheduler_logged_decisions_total", {"outcome": outcome}) or 0.0


async def test_filter_and_bind_are_in_the_log_with_pod_time_and_node(tmp_path: Path) -> None:
    async with server() as api, replica(api, log_folder=tmp_path) as world:
        await world.add_node("a")
        pod = await world.add_pod("p")
        assert (await world.filter(pod, "a", "unheard-of")).node_names == ["a"]
        assert await world.bind(pod, "a") == ""
        assert (await world.filter(await world.add_pod("q", 9000), "a")).node_names == []
    (path,) = tmp_path.iterdir()
    found = records(path)
    first, second = (each for each in found if isinstance(each, NodesJudged))
    (placed,) = (each for each in found if isinstance(each, PodPlaced))
    (bound,) = (each for each in found if isinstance(each, PodBound))
    assert first.pod == placed.pod.__class__(pod.metadata.uid, "default", "p", first.pod.created)
    assert first.pod.created > 1_700_000_000
    assert (first.fits, first.verb, second.fits, second.refusals) == (1, "filter", 0, (("CardInsufficientMemory", 1),))
    assert placed.containers[0].uuids == ("a-0",)
    assert bound.pod_uid == pod.metadata.uid
    assert all(each.at > 1_700_000_000 for each in found if isinstance(each, Moment))
    assert counted(world.metrics, "written") == 3
    assert path.stat().st_mode & 0o077 == 0, "it has names of pods"


async def test_a_pod_whose_bindings_answer_was_lost_is_bound_once_anything_says_so(tmp_path: Path) -> None:
    """Its informer, or a question that is asked again: in either case once, and before it ends."""
    async with server() as api, replica(api, Faulty, log_folder=tmp_path) as world:
        await world.add_node("a")
        seen, asked = await world.add_pod("seen"), await world.add_pod("asked")
        world.client.after = LOST
        world.pods._apply = lambda event: None  # type: ignore[method-assign]
        for pod in (seen, asked):
            api.intercept(refuse_reading_of(pod.metadata.name))
            assert "not know yet" in await world.bind(pod, "a")
            world.extender._log.turn(True)
            assert world.state_of(pod) is GrantState.RESERVED
            if pod is seen:
                await world.pods.wait_for_relist()
                assert world.state_of(pod) is GrantState.BOUND
        api.intercept(None)
        await world.extender._binder.resolve()
        assert world.state_of(asked) is GrantState.BOUND
    (path,) = tmp_path.iterdir()
    found = records(path)
    assert [each.pod_uid for each in found if isinstance(each, PodBound)] == [seen.metadata.uid, asked.metadata.uid]
    taken = [each.state for each in found if isinstance(each, GrantTaken)]
    assert taken == [GrantState.RESERVED] * 2, "nothing else says so"


async def test_the_end_of_a_pod_is_in_the_log_at_its_time_though_nothing_is_decided(tmp_path: Path) -> None:
    async with server() as api, replica(api, log_folder=tmp_path) as world:
        await world.add_node("a")
        pod = await world.add_pod("p")
        assert (await world.filter(pod, "a")).node_names == ["a"]
        assert await world.bind(pod, "a") == ""
        await eventually(lambda: world.state_of(pod) is not None)
        await world.client.delete(PODS, "p", "default", grace_period_seconds=0)
        await eventually(lambda: world.state_of(pod) is None)
    (path,) = tmp_path.iterdir()
    found = records(path)
    (place,) = (number for number, each in enumerate(found) if isinstance(each, GrantReleased))
    before = [each for each in found[:place] if isinstance(each, Moment)]
    assert isinstance(found[place - 1], Moment | FreeResourcesTaken)
    assert before[-1].at > before[-2].at


async def test_a_pod_that_is_deleted_while_it_waits_is_in_the_log_at_its_time(tmp_path: Path) -> None:
    async with server() as api, replica(api, log_folder=tmp_path) as world:
        world.extender.attach(world.pods)
        await world.add_node("a")
        waits, bound = await world.add_pod("waits", 9000), await world.add_pod("bound")
        assert (await world.filter(waits, "a")).node_names == []
        assert await world.bind(bound, "a") == ""
        for pod in (waits, bound):
            await world.client.delete(PODS, pod.metadata.name, "default", grace_period_seconds=0)
            await eventually(lambda uid=pod.metadata.uid: world.cache.pod_by_uid(uid) is None)  # type: ignore[misc]
    (path,) = tmp_path.iterdir()
    found = records(path)
    assert [each.pod_uid for each in found if isinstance(each, PodGone)] == [waits.metadata.uid]
    (place,) = (number for number, each in enumerate(found) if isinstance(each, PodGone))
    assert isinstance(found[place - 1], Moment)


@pytest.mark.gate
async def test_full_files_are_followed_by_others_that_stand_by_themselves(tmp_path: Path) -> None:
    async with server() as api, replica(api, log_folder=tmp_path, log_bytes=4000) as world:
        await world.add_node("a", cards=4)
        for number in range(30):
            pod = await world.add_pod(f"p{number}")
            await world.filter(pod, "a")
            await world.bind(pod, "a")
            world.extender._log.turn(True)
            files = world.extender._log._files  # type: ignore[attr-defined]
            until(lambda files=files: not files._waiting)  # type: ignore[misc]
    paths = sorted(tmp_path.iterdir())
    assert len(paths) > 2
    for path in paths:
        replayer, reader = Replayer(), Reader(io.BytesIO(path.read_bytes()).read)
        assert [found for record in reader if (found := replayer.take(reader, record)) is not None] == []
        assert path.stat().st_size < 3 * 4000


def test_the_oldest_files_go(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("stays")
    written = LogFiles(tmp_path, "host/with.odd name", 3, SchedulerMetrics())
    for number in range(6):
        assert written.begin([START, Moment(float(number))])
        until(lambda: not written._waiting)
    written.stop()
    left = sorted(tmp_path.glob("decisions-*.log"))
    assert [records(path)[1] for path in left] == [Moment(3.0), Moment(4.0), Moment(5.0)]
    assert all("host_with.odd_name" in path.name for path in left)
    assert (tmp_path / "other.txt").exists()


async def test_a_folder_that_cannot_be_written_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    with capture_logs() as told:
        async with server() as api, replica(api, log_folder=tmp_path / "gone") as world:
            await world.add_node("a")
            for number in range(3):
                pod = await world.add_pod(f"p{number}")
                assert (await world.filter(pod, "a")).node_names == ["a"]
                assert await world.bind(pod, "a") == ""
                world.extender._log.turn(True)
            until(lambda: counted(world.metrics, "lost") == 6)
            (tmp_path / "gone").mkdir()
            world.clock.ahead_s = 100
            world.extender._log.turn(True)
            await world.filter(await world.add_pod("last"), "a")
    assert counted(world.metrics, "written") == 1
    assert [each["event"] for each in told if "decision log" in each["event"]] == [
        "Failed to write the decision log; scheduling continues"
    ]


def test_a_full_disk_loses_what_does_not_fit_and_the_file_is_read_up_to_there(tmp_path: Path) -> None:
    metrics, write = SchedulerMetrics(), os.write
    written = LogFiles(tmp_path, "h", 3, metrics)

    def full(file: int, data: bytes) -> int:
        if written.size_bytes > 2000:
            write(file, bytes(data)[:3])
            raise OSError(28, "No space left on device")
        return write(file, data)

    with patch.object(files.os, "write", full):
        written.begin([START])
        taken = sum(written.add([Moment(float(number))], 1) for number in range(1000))
        until(lambda: counted(metrics, "written") + counted(metrics, "lost") == taken)
        assert written.has_failed
        assert not written.add([Moment(0.0)], 1)
    written.stop()
    (path,) = tmp_path.iterdir()
    reader, read = Reader(io.BytesIO(path.read_bytes()).read), []
    with pytest.raises(DecisionLogError, match="the file ends in the middle of the record"):
        read.extend(reader)
    assert counted(metrics, "written") == len(read) - 1 > 50


def test_a_full_disk_costs_no_file_that_was_written_before(tmp_path: Path) -> None:
    written = LogFiles(tmp_path, "h", 4, SchedulerMetrics())
    for number in range(4):
        assert written.begin([START, Moment(float(number))])
    until(lambda: len(list(tmp_path.iterdir())) == 4 and all(path.stat().st_size for path in tmp_path.iterdir()))
    before = sorted(tmp_path.iterdir())
    with patch.object(files.os, "write", side_effect=OSError(28, "No space left on device")):
        for _ in range(8):
            assert written.begin([START])
            until(lambda: written.has_failed)
        assert sorted(tmp_path.iterdir()) == before, "and no empty ones"
    assert written.begin([START])
    written.stop()
    assert sorted(tmp_path.iterdir())[:3] == before[1:]


async def test_while_a_disk_hangs_no_state_is_made_for_files_that_cannot_begin(tmp_path: Path) -> None:
    hangs, goes_on, write = threading.Event(), threading.Event(), os.write

    def slow(file: int, data: bytes) -> int:
        hangs.set()
        goes_on.wait()
        return write(file, data)

    async with server() as api, replica(api, log_folder=tmp_path) as world:
        await world.add_node("a")
        with patch.object(files.os, "write", slow), patch.object(files, "MAX_WAITING", 3):
            await world.filter(await world.add_pod("first"), "a")
            until(hangs.is_set)  # the thread has taken it, and takes nothing more
            for number in range(8):
                await world.filter(await world.add_pod(f"p{number}"), "a")
            with patch("purser.scheduler.decision_log.log.Recording", side_effect=AssertionError):
                for ahead_s in (2, 2, 100, 2):
                    world.clock.ahead_s += ahead_s
                    world.extender._log.turn(True)
            goes_on.set()
            until(lambda: not world.extender._log._files._waiting)
            world.clock.ahead_s += 100
            world.extender._log.turn(True)
            await world.filter(await world.add_pod("last"), "a")
    judged = [each for path in sorted(tmp_path.iterdir()) for each in records(path) if isinstance(each, NodesJudged)]
    assert judged[-1].pod.name == "last"


@pytest.mark.parametrize(
    ("size", "most"), [((), files.MAX_WAITING), ((files.MAX_WAITING_BYTES // 4,), 4)], ids=["records", "memory"]
)
def test_nobody_waits_for_a_disk_that_hangs_and_what_waits_for_it_is_bounded(
    tmp_path: Path, size: tuple[int, ...], most: int
) -> None:
    written, hangs = LogFiles(tmp_path, "h", 3, SchedulerMetrics()), os.write
    goes_on = threading.Event()

    def slow(file: int, data: bytes) -> int:
        goes_on.wait()
        return hangs(file, data)

    with patch.object(files.os, "write", slow):
        assert written.begin([START])
        taken = [written.add([Moment(0.0)], 1, *size) for _ in range(most + 10)]
        assert taken[0]
        assert not size or (taken[:most] == [True] * most and taken.count(True) <= most + 1)
        assert not taken[-1]
        goes_on.set()
        until(lambda: written.add([Moment(0.0)], 1, *size))
    until(lambda: written.begin([START]))  # the next file, once what waits has left room for it
    written.stop()


def test_a_thread_that_falls_asleep_leaves_nothing_behind(tmp_path: Path) -> None:
    """Handed over at any moment of its last looks: each batch is waited for, and nothing comes after it to wake it."""
    metrics, chance = SchedulerMetrics(), Random(1)
    with patch.object(files, "_LOOK_PERIOD_S", 0.0005), patch.object(files, "_MAX_IDLE_LOOKS", 2):
        written = LogFiles(tmp_path, "h", 3, metrics)
        assert written.begin([START])
        for number in range(100):
            end = time.perf_counter() + 0.002 * chance.random()
            while time.perf_counter() < end:
                pass
            assert written.add([Moment(float(number))], 1)
            until(lambda: not written._waiting)
        written.stop()
    (path,) = tmp_path.iterdir()
    assert [each.at for each in records(path)[1:] if isinstance(each, Moment)] == [float(n) for n in range(100)]
    assert counted(metrics, "written") == 100


KILLED = """
import sys, time
from pathlib import Path
from purser.core.decisions.records import LOG_FORMAT, Moment, SchedulingStart
from purser.core.placement import PolicySettings
from purser.kube.resources import PODS
from purser.scheduler.decision_log import LogFiles
from purser.scheduler.metrics import SchedulerMetrics
files = LogFiles(Path(sys.argv[1]), "h", 3, SchedulerMetrics())
files.begin([SchedulingStart(LOG_FORMAT, "", PolicySettings(), 0.0)])
print("up", flush=True)
number = 0
while True:
    number += files.add([Moment(float(number))], 1)
    time.sleep(0.0001)
"""


@pytest.mark.gate
def test_after_kill_9_the_file_is_read_up_to_its_last_whole_record(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    until(lambda: any(path.stat().st_size > 5000 for path in tmp_path.iterdir()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    (path,) = tmp_path.iterdir()
    content, read = path.read_bytes(), []
    for cut in range(30):  # wherever the kill falls
        reader, read = Reader(io.BytesIO(content[: len(content) - cut]).read), []
        try:
            read.extend(reader)
        except DecisionLogError as error:
            assert str(error).endswith("the file ends in the middle of the record")
        numbers = [each.at for each in read if isinstance(each, Moment)]
        assert numbers == [float(number) for number in range(len(numbers))]
        assert len(numbers) > 100


async def test_a_fault_of_the_log_fails_no_decision(tmp_path: Path) -> None:
    async with server() as api, replica(api, log_folder=tmp_path) as world:
        await world.add_node("a")
        pod = await world.add_pod("p")
        at_once, later = "purser.core.decisions.recording.JudgedNote", "purser.core.decisions.transcript.digest"
        for number, where in enumerate((at_once, later), 1):
            with patch(where, side_effect=ZeroDivisionError), capture_logs() as told:
                assert (await world.filter(pod, "a")).node_names == ["a"]
                assert (await world.filter(pod, "a")).node_names == ["a"]
                until(lambda lost=2 * number: counted(world.metrics, "lost") == lost)  # type: ignore[misc]
            assert [each["event"] for each in told if each["log_level"] == "error"] == [
                "Failed to log a scheduling decision; scheduling continues"
            ]
            world.clock.ahead_s += 100
            world.extender._log.turn(True)
        assert await world.bind(pod, "a") == ""
        until(lambda: counted(world.metrics, "written") == 1)


async def test_names_are_hashes_and_one_pod_in_some_is_logged(tmp_path: Path) -> None:
    async with server() as api, replica(api, log_folder=tmp_path, names_key=b"secret", one_in=3) as world:
        await world.add_node("node-of-acme")
        for number in range(60):
            await world.filter(await world.add_pod(f"pod-of-acme-{number}"), "node-of-acme")
    (path,) = tmp_path.iterdir()
    assert b"acme" not in path.read_bytes().replace(b"node-of-acme-0", b""), "but for the uuids of GPUs"
    assert b"default" not in path.read_bytes()
    judged = [each for each in records(path) if isinstance(each, NodesJudged)]
    assert 0 < len(judged) < 60
    assert len({each.pod.namespace for each in judged}) == 1
