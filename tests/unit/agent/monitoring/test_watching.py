"""What the agent says of its GPUs while those who know the rest do not answer."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agent.builders import A, B, grant, part
from tests.unit.kube.servers import ManualClock

from purser.agent.allocation.book import Book
from purser.agent.allocation.pod_statuses import ContainerIdentity, NodePod, NodePodStatus, by_kubelet_uid
from purser.agent.kubelet.pod_resources import KubeletError
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.agent.monitoring.watching import GpuMonitoring
from purser.agent.nvml import DriverInfo, Gpu, GpuProcess, NullDriver, Telemetry
from purser.agent.settings import AgentSettings, MetricNames
from purser.core.monitoring.accounts import GpuMemory, PodContainers
from purser.kube.failures import ObjectFailures
from purser.kube.objects import MIRROR_POD_ANNOTATION, ObjectMeta

UID = "0f3ad3a2-9c1b-4f6e-8d57-0a4b5c6d7e8f"
ID = "ab" * 32


class Driver(NullDriver):
    asked = 0

    def __init__(self) -> None:
        super().__init__("")
        self.lost: set[str] = set()

    def telemetry(self, uuid: str) -> Telemetry:
        self.asked += 1
        if uuid in self.lost:
            return Telemetry(uuid=uuid)
        fields = {"DCGM_FI_DEV_GPU_TEMP": 40.0}
        return Telemetry(uuid=uuid, fields=fields, memory=GpuMemory(9, 4, 5), processes=(GpuProcess(1, 5, 10),))


class Kubelet:
    def __init__(self) -> None:
        self.answers = True

    async def resources(self) -> list[api_pb2.PodResources]:
        if not self.answers:
            raise KubeletError("gone")
        devices = [api_pb2.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[A])]
        containers = [api_pb2.ContainerResources(name="main", devices=devices)]
        return [api_pb2.PodResources(namespace="ns", name="p", containers=containers)]


class Auditor:
    findings = ()

    def __init__(self) -> None:
        self.taken: list[Any] = []

    async def take(self, accounts: Any, grants: Any, holders: Any, unlimited: Any) -> None:
        self.taken.append({account.uuid for account in accounts})


class World:
    def __init__(self, folder: Path) -> None:
        (folder / "proc" / "1").mkdir(parents=True)
        (folder / "proc" / "1" / "cgroup").write_text(f"0::/kubepods/pod{UID}/{ID}\n")
        self.clock, self.kubelet, self.auditor, self.driver = ManualClock(), Kubelet(), Auditor(), Driver()
        status = NodePodStatus(container_statuses=(ContainerIdentity("main", f"containerd://{ID}"),))
        pod = NodePod(metadata=ObjectMeta(name="p", namespace="ns", uid=UID), status=status)
        self.health = SimpleNamespace(synced=True)
        informer = SimpleNamespace(store={"ns/p": pod}, health=self.health)
        grants = {"ns/p": grant("p", part("main", A))}
        pods = SimpleNamespace(pods=informer, view=lambda: SimpleNamespace(grants=grants))
        gpus = {uuid: Gpu(index=index, uuid=uuid) for index, uuid in enumerate((A, B))}
        monitor = SimpleNamespace(
            driver=self.driver,
            identified=lambda: gpus,
            last_xids={},
            info=DriverInfo(version="550"),
            inventory=SimpleNamespace(value=None),
        )
        settings = AgentSettings(
            node_name="n", host_root=folder, telemetry_interval_s=1.0, metrics_also_as=(MetricNames.DCGM,)
        )
        book = Book(folder / "book", "n")
        arguments: tuple[Any, ...] = (settings, monitor, pods, book, self.kubelet, self.auditor)
        self.monitoring = GpuMonitoring(*arguments, ObjectFailures(), self.clock)

    def labelled(self) -> bool:
        return 'namespace="ns",pod="p"' in self.monitoring.compatible()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_scrape_asks_no_driver_and_exports_nothing_too_old(world: World) -> None:
    await world.monitoring.measure()
    asked = world.driver.asked
    assert [use.owner.pod for use in world.monitoring.measured.accounts[A].containers] == ["p"]
    world.clock.advance(30)
    assert world.monitoring.measured.telemetry.keys() == {A, B}
    assert "DCGM_FI_DEV_GPU_TEMP" in world.monitoring.compatible()
    world.clock.advance(1)
    measured = world.monitoring.measured
    assert (measured.telemetry, measured.accounts) == ({}, {})
    assert measured.ages_s == {A: 31, B: 31}
    assert "DCGM_FI_DEV_GPU_TEMP" not in world.monitoring.compatible()
    assert world.driver.asked == asked


async def test_a_gpu_lost_between_two_measurements_reports_no_zero_use(world: World) -> None:
    await world.monitoring.ask_kubelet()
    await world.monitoring.measure()
    world.driver.lost = {A}
    await world.monitoring.measure()
    measured = world.monitoring.measured
    assert measured.accounts.keys() == {B}, "neither as before nor zero"
    assert (measured.telemetry[A].fields, measured.telemetry[A].memory) == ({}, None)
    assert world.auditor.taken == [{A, B}, {B}], "what was found there is not settled by silence"
    world.driver.lost = set()
    await world.monitoring.measure()
    assert world.monitoring.measured.accounts.keys() == {A, B}


async def test_without_kubelet_gpus_are_measured_and_nobody_is_judged(world: World) -> None:
    await world.monitoring.measure()
    assert (world.labelled(), world.auditor.taken) == (False, [])
    await world.monitoring.ask_kubelet()
    await world.monitoring.measure()
    assert world.labelled()
    assert len(world.auditor.taken) == 1
    world.kubelet.answers = False
    world.clock.advance(31)
    await world.monitoring.ask_kubelet()
    await world.monitoring.measure()
    assert not world.labelled(), "who held it half a minute ago may not hold it now"
    assert len(world.auditor.taken) == 1
    assert world.monitoring.measured.telemetry.keys() == {A, B}


async def test_processes_have_no_pod_before_the_pods_are_known(world: World) -> None:
    world.health.synced = False
    await world.monitoring.ask_kubelet()
    await world.monitoring.measure()
    assert world.monitoring.measured.accounts == {}, "least of all foreign"
    assert world.monitoring.measured.telemetry.keys() == {A, B}
    assert world.auditor.taken == []


def test_pods_are_found_by_the_uid_that_kubelet_has_for_them() -> None:
    def pod(name: str, uid: str, mirrored: str = "") -> NodePod:
        annotations = {MIRROR_POD_ANNOTATION: mirrored} if mirrored else {}
        return NodePod(metadata=ObjectMeta(name=name, namespace="ns", uid=uid, annotations=annotations))

    found = by_kubelet_uid([pod("plain", "u-1"), pod("static", "u-2", "a-hash"), pod("thief", "u-3", "u-1")])
    assert {uid: entry.name for uid, entry in found.items()} == {
        "u-1": "plain",
        "u-2": "static",
        "a-hash": "static",
        "u-3": "thief",
    }, "nobody takes another pod's processes over by an annotation"
    assert found["a-hash"] == PodContainers("u-2", "ns", "static")
