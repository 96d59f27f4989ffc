"""Small parts: the folder watch, values that change, calls in threads, keys and what a pod asks."""

import asyncio
import contextlib
import threading
from pathlib import Path

import msgspec
import pytest

from purser.adapters.pods import devices_asked
from purser.agent.allocation.answers import ContainerFacts
from purser.agent.allocation.pods import container_facts
from purser.agent.host import inotify
from purser.agent.host.inotify import FolderWatch
from purser.agent.host.latest import Latest
from purser.agent.host.threads import run_in_thread
from purser.core.model import LibraryHold, SpecHold
from purser.core.names import INIT_RESOURCES_ANNOTATION
from purser.kube.objects import Container, ContainerEnvVar, ObjectMeta, Pod, PodSpec, ResourceRequirements


def facts(pod: Pod, name: str) -> ContainerFacts:
    """What of the container itself matters."""
    return msgspec.structs.replace(container_facts(pod, name), pod=None)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: (folder / "new").touch(), id="a file comes"),
        pytest.param(lambda folder: (folder / "old").unlink(), id="a file goes"),
        pytest.param(lambda folder: (folder / "old").rename(folder / "other"), id="a file is renamed"),
        pytest.param(lambda folder: (folder / "old").chmod(0o600), id="a file's mode changes"),
    ],
)
async def test_a_change_in_the_folder_wakes(tmp_path, monkeypatch, change):
    monkeypatch.setattr(inotify, "WATCHED_POLL_PERIOD_S", 3600)
    (tmp_path / "old").touch()
    with FolderWatch(tmp_path) as watch:
        waiting = asyncio.create_task(watch.changed())
        await asyncio.sleep(0)
        change(tmp_path)
        await asyncio.wait_for(waiting, 20)


async def test_a_folder_that_is_not_there_yet_is_polled_and_then_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(inotify, "UNWATCHED_POLL_PERIOD_S", 0.01)
    monkeypatch.setattr(inotify, "WATCHED_POLL_PERIOD_S", 3600)
    folder = tmp_path / "later"
    with FolderWatch(folder) as watch:
        await watch.changed()
        folder.mkdir()
        await watch.changed()
        waiting = asyncio.create_task(watch.changed())
        await asyncio.sleep(0)
        (folder / "new").touch()
        await asyncio.wait_for(waiting, 20)


async def test_without_inotify_the_folder_is_polled(tmp_path, monkeypatch):
    monkeypatch.setattr(inotify, "UNWATCHED_POLL_PERIOD_S", 0.01)

    def refuse(*_, **__):
        raise OSError("no libc")

    monkeypatch.setattr(inotify.ctypes, "CDLL", refuse)
    with FolderWatch(tmp_path) as watch:
        await asyncio.wait_for(watch.changed(), 20)


async def test_leaving_the_watch_closes_its_descriptor(tmp_path):
    before = watches()
    with FolderWatch(tmp_path):
        assert watches() == before + 1
    assert watches() == before


def watches():
    """Descriptors of inotify: others come and go with garbage and threads of this process."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(path.readlink()).endswith("inotify")
    return found


async def test_who_waits_for_a_change_sees_the_latest_value():
    value = Latest(1)
    assert not value.set(1)
    waiting = [asyncio.create_task(value.wait_for_change(1)) for _ in range(2)]
    await asyncio.sleep(0)
    value.set(2)
    value.set(3)
    assert await asyncio.gather(*waiting) == [3, 3]
    assert await value.wait_for_change(1) == 3


async def test_a_call_in_a_thread_returns_raises_and_may_be_abandoned():
    assert await run_in_thread(lambda: 1, "t") == 1
    with pytest.raises(ValueError, match="why"):
        await run_in_thread(lambda: (_ for _ in ()).throw(ValueError("why")), "t")
    release = threading.Event()
    abandoned = run_in_thread(release.wait, "t")
    abandoned.cancel()
    release.set()
    assert await run_in_thread(lambda: 2, "t") == 2


def container(name, limits=None, **env):
    variables = tuple(ContainerEnvVar(key, value) for key, value in env.items())
    return Container(name=name, resources=ResourceRequirements(limits=limits or {}), env=variables)


def test_a_pod_asks_for_what_its_limits_say():
    pod = Pod(
        spec=PodSpec(
            init_containers=(container("init", {"nvidia.com/gpu": "1"}),),
            containers=(container("none", {"cpu": "1"}), container("two", {"nvidia.com/gpu": 2}), container("zero")),
        )
    )
    assert devices_asked(pod) == {"init": 1, "two": 2}


def test_priority_and_the_way_out_are_read_from_the_container():
    pod = Pod(
        spec=PodSpec(
            containers=(
                container("plain"),
                container("urgent", {"nvidia.com/priority": "0"}),
                container("free", CUDA_DISABLE_CONTROL="true"),
            )
        )
    )
    assert facts(pod, "plain") == facts(pod, "absent") == ContainerFacts()
    assert facts(pod, "urgent") == ContainerFacts(priority=0)
    assert facts(pod, "free") == ContainerFacts(hold=SpecHold(LibraryHold.OFF))


def test_an_init_containers_priority_is_where_the_webhook_moved_it():
    pod = Pod(
        metadata=ObjectMeta(annotations={INIT_RESOURCES_ANNOTATION: '{"init": {"nvidia.com/priority": "0"}}'}),
        spec=PodSpec(init_containers=(container("init"),), containers=(container("main"),)),
    )
    assert facts(pod, "init") == ContainerFacts(priority=0)
    assert facts(pod, "main") == ContainerFacts()
