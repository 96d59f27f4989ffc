"""A bad object takes no turn of another: what cannot be read, or a part of Purser fails on, is reported and passed."""

import os
import subprocess
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from purser.agent.hostfiles import remove_dir
from purser.agent.settings import AgentSettings
from purser.core.names import GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION, INVENTORY_ANNOTATION, KUBELET_ANNOTATION
from purser.kube.informer import Informer
from purser.kube.resources import PODS
from tests.unit.kube.servers import client_of, eventually, line, listing, pod, running
from tests.unit.kube.test_informer import Script, informer_of
from tests.unit.scheduler.extender_world import replica, server

pytestmark = pytest.mark.processes


@asynccontextmanager
async def world_of():
    async with server() as api, replica(api) as world:
        yield world


DEEP = '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"


class Said:
    """Events, as they are posted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, about, reason, message, type="Normal"):
        self.events.append((about.name, reason, message))


def reporting(client):
    registry, said = CollectorRegistry(), Said()
    client.failures.report_to(registry, said)
    return registry, said


async def test_an_object_that_cannot_be_read_stays_as_it_was_known_and_is_reported_once():
    odd = {"metadata": {"name": "odd", "namespace": "ns", "uid": "1", "resourceVersion": "7", "labels": 3}}
    known = pod("odd", 3)
    script = Script(
        listing([known, pod("a")], 5), (line("MODIFIED", odd), line("MODIFIED", odd)), listing([odd, pod("b", 8)], 9)
    )
    async with client_of(script.handle) as client:
        registry, said = reporting(client)
        informer = informer_of(client)
        async with running(informer.run()):
            await informer.synced()
            await informer.relist()
            await eventually(lambda: "ns/b" in informer.store)
    assert sorted(informer.store) == ["ns/b", "ns/odd"]  # what it holds is not free because nobody can read it
    assert informer.store["ns/odd"].metadata.resource_version == "3"
    assert [(name, reason) for name, reason, _ in said.events] == [("odd", "Unreadable")]
    assert "metadata.labels" in said.events[0][2]
    assert b'purser_object_failures_total{resource="pods",stage="read"} ' in generate_latest(registry)


async def test_a_handler_that_fails_is_reported_with_its_object_and_counted():
    script = Script(listing([pod("a"), pod("b")], 5))
    heard: list[str] = []

    def handle(new):
        if new.metadata.name == "a":
            raise KeyError("x" * 100_000)
        heard.append(new.metadata.name)

    async with client_of(script.handle) as client:
        registry, said = reporting(client)
        informer: Informer = informer_of(client)
        informer.add_handler(on_add=handle)
        async with running(informer.run()):
            await informer.synced()
    assert heard == ["b"]
    ((name, reason, message),) = said.events
    assert (name, reason) == ("a", "HandlingFailed")
    assert "KeyError" in message and len(message) < 400
    assert b'purser_object_failures_total{resource="pods",stage="handle"} 1.0' in generate_latest(registry)


async def test_a_leader_takes_over_whatever_grants_were_put_on_pods_before():
    async with world_of() as world:
        _, said = reporting(world.client)
        await world.add_node("n1")
        hostile = {"deep": DEEP, "odd": '"\\ud800"', "long": "[" * 100_000, "infinite": '{"x":1e400,"pod_uid":1e400}'}
        for name, grant in hostile.items():
            bad = await world.add_pod(name, memory=None, annotations={GRANT_ANNOTATION: '{"not":"a grant"}'})
            await world.client.bind("default", name, bad.metadata.uid, "n1", {})
            await eventually(lambda bad=bad: bad.metadata.uid in world.cache.untrusted)
            changed = {GRANT_ANNOTATION: grant, GRANT_SIGNATURE_ANNOTATION: "é"}
            await world.client.patch_merge(PODS, name, {"metadata": {"annotations": changed}}, "default")
        await world.cache.relist()
        assert len(world.cache.untrusted) == len(hostile)
        assert {name for name, reason, _ in said.events if reason == "UntrustedGrant"} == hostile.keys()
        honest = await world.add_pod("honest")
        assert await world.bind(honest, "n1") == ""


async def test_a_leader_takes_over_even_where_it_fails_on_a_pod(monkeypatch):
    async with world_of() as world:
        await world.add_node("n1")
        for name in ("one", "two"):
            bad = await world.add_pod(name, memory=None, annotations={GRANT_ANNOTATION: "no grant"})
            await world.client.bind("default", name, bad.metadata.uid, "n1", {})
            await eventually(lambda bad=bad: bad.metadata.uid in world.cache.untrusted)
        seen = []

        def fails(pod):
            seen.append(pod.metadata.name)
            raise RecursionError

        monkeypatch.setattr(world.cache, "put_pod", fails)
        await world.cache.relist()
        assert sorted(seen) == ["one", "two"]


async def test_nodes_with_hostile_annotations_keep_no_pod_from_the_others():
    async with world_of() as world:
        _, said = reporting(world.client)
        await world.add_node("good")
        for number, text in enumerate((DEEP, "\N{DIGIT ONE}" * 9, '{"node":1e400}', '{"x":' + "9" * 5000 + "}")):
            annotations = {INVENTORY_ANNOTATION: text, KUBELET_ANNOTATION: text}
            body = {"metadata": {"name": f"bad{number}", "annotations": annotations}}
            await world.client.create(world.nodes.resource, body)
        await eventually(lambda: len(world.nodes.store) == 5)
        told = [(name, "kubelet" in message) for name, reason, message in said.events if reason == "Unreadable"]
        assert sorted(told) == [(f"bad{number}", of_kubelet) for number in range(4) for of_kubelet in (False, True)]
        honest = await world.add_pod("honest")
        result = await world.filter(honest, "good", "bad0", "bad1", "bad2", "bad3")
        assert result.node_names == ["good"]
        assert await world.bind(honest, "good") == ""


@pytest.fixture
def bottomless():
    """A folder nested deeper than Python's stack and the kernel's longest path go.

    Not in pytest's temporary folder, whose clean-up runs out of stack on what a run that failed leaves there.
    """
    root = Path(tempfile.mkdtemp())
    folder, before = root / "deep", os.open(".", os.O_RDONLY)
    folder.mkdir()
    try:
        os.chdir(folder)
        for _ in range(1100):
            Path("nested").mkdir()
            os.chdir("nested")
        os.fchdir(before)
        yield folder
    finally:
        os.fchdir(before)
        os.close(before)
        subprocess.run(["rm", "-rf", root], check=True)  # which keeps no stack


def test_a_container_that_nests_folders_without_end_does_not_stop_the_agent(bottomless, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (bottomless / "link").symlink_to(outside)
    (bottomless / "nested" / "link").symlink_to(outside)
    (bottomless / "nested" / "file").write_text("x")
    (outside / "file").write_text("kept")
    remove_dir(AgentSettings(node_name="n1", host_root=bottomless.parent), Path("/deep"))
    assert not bottomless.exists()
    assert (outside / "file").read_text() == "kept"
