"""What a node says of itself."""

import asyncio

import pytest
from tests.unit.operator.embedded import create_node, embedded, eventually, node, running

from purser.agent.host import discovery
from purser.agent.host.discovery import DiscoverySettings, read_facts, run
from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.facts import NodeFacts, PciGpu, decode_facts
from purser.kube import Client
from purser.kube.resources import NODES

UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n# a comment\nodd line\n'


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "host/etc").mkdir(parents=True)
    return DiscoverySettings("a", tmp_path / "host", tmp_path / "sys", interval_s=0.005)


def pci(settings, address, vendor="0x10de", kind="0x030200", device="0x20b0", subsystem=None):
    """A card, whole at once: whoever looks meanwhile sees no half of it."""
    folder = settings.sysfs_root / "coming" / address
    folder.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("class", kind), ("device", device), ("subsystem_device", subsystem)):
        if text is not None:
            (folder / name).write_text(f"{text}\n")
    bus = settings.sysfs_root / "bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    folder.rename(bus / address)


def test_gpus_are_nvidias_display_controllers_in_order_of_their_address(settings):
    pci(settings, "0000:0a:00.0", device="0x2330")
    pci(settings, "0000:07:00.0", kind="0x030000")
    pci(settings, "0000:08:00.0", kind="0x040300")  # the card's audio function
    pci(settings, "0000:09:00.0", vendor="0x1002")
    pci(settings, "0000:0b:00.0", kind="0x068000")  # an NVSwitch is a bridge
    assert read_facts(settings).gpus == (PciGpu("20b0"), PciGpu("2330"))


def test_gpus_of_one_device_id_are_distinguished_by_their_subsystem(settings):
    pci(settings, "0000:0a:00.0", device="0x25B6", subsystem="0x157E")
    assert read_facts(settings).gpus == (PciGpu("25b6", "157e"),)


def test_a_machine_without_pci_has_no_gpus(settings):
    assert read_facts(settings) == NodeFacts()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (UBUNTU, ("ubuntu", "22.04")),
        ("ID='sles'\nVERSION_ID=15.5", ("sles", "15.5")),
        ('ID="unbalanced\nVERSION_ID=1', ('"unbalanced', "1")),
        ("", ("", "")),
    ],
    ids=["double quotes", "single quotes", "a broken line spoils no other", "an empty file"],
)
def test_the_operating_system_is_read_from_os_release(settings, text, wanted):
    (settings.host_root / "etc/os-release").write_text(text)
    facts = read_facts(settings)
    assert (facts.os_id, facts.os_version) == wanted


@pytest.mark.parametrize("target", ["../usr/lib/os-release", "/usr/lib/os-release"], ids=["relative", "absolute"])
def test_os_release_is_the_hosts_also_where_it_is_a_link(settings, target):
    (settings.host_root / "usr/lib").mkdir(parents=True)
    (settings.host_root / "usr/lib/os-release").write_text(UBUNTU)
    (settings.host_root / "etc/os-release").symlink_to(target)
    assert read_facts(settings).os_id == "ubuntu"


@pytest.mark.parametrize(
    ("folder", "distribution"),
    [
        ("var/lib/rancher/k3s", "k3s"),
        ("etc/rancher/rke2", "rke2"),
        ("var/lib/k0s", "k0s"),
        ("var/snap/microk8s", "microk8s"),
        ("var/lib/kubelet", ""),
    ],
)
def test_distributions_are_reported_by_their_folders(settings, folder, distribution):
    (settings.host_root / folder).mkdir(parents=True)
    assert read_facts(settings).distribution == distribution


async def test_facts_are_written_when_they_differ_and_only_then(settings, tmp_path, monkeypatch):
    looks = []

    def noted(settings):
        looks.append(read_facts(settings))
        return looks[-1]

    monkeypatch.setattr(discovery, "read_facts", noted)
    (settings.host_root / "etc/os-release").write_text(UBUNTU)
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))

        async def facts():
            found = await cluster.client.get(NODES, "a")
            return decode_facts(found.metadata.annotations.get(NODE_FACTS_ANNOTATION))

        with running(run(settings, client, asyncio.Event())):
            assert (await eventually(facts)).gpus == ()
            pci(settings, "0000:07:00.0")

            async def has_gpu():
                return (await facts()).gpus

            await eventually(has_gpu)
            looks.clear()
            await eventually(lambda: len(looks) > 2 * discovery._READS_BETWEEN_CHECKS)
        assert cluster.writes == ["PATCH /api/v1/nodes/a"] * 2


async def test_facts_that_were_removed_come_back(settings, tmp_path):
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        await create_node(cluster.client, node("a"))

        async def written():
            return NODE_FACTS_ANNOTATION in (await cluster.client.get(NODES, "a")).metadata.annotations

        with running(run(settings, client, asyncio.Event())):
            await eventually(written)
            await cluster.client.patch_merge(NODES, "a", {"metadata": {"annotations": {NODE_FACTS_ANNOTATION: None}}})
            await eventually(written)


async def test_a_node_that_is_not_there_yet_is_waited_for(settings, tmp_path):
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        asked = []

        async def note(request):
            asked.append(request.path)

        cluster.server.intercept(note)
        with running(run(settings, client, asyncio.Event())) as task:
            await eventually(lambda: asked.count("/api/v1/nodes/a") > 2)
            assert not task.done()
            await create_node(cluster.client, node("a"))

            async def written():
                return NODE_FACTS_ANNOTATION in (await cluster.client.get(NODES, "a")).metadata.annotations

            await eventually(written)


async def test_discovery_ends_when_stopped(settings, tmp_path):
    async with embedded(tmp_path) as cluster, Client(cluster.config) as client:
        stop = asyncio.Event()
        stop.set()
        async with asyncio.timeout(60):
            await run(settings, client, stop)
