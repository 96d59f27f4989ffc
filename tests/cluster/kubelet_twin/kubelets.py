"""The two kubelets, behind the little that a scenario does to one."""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from purser.core.kubelet.cpuset import cpus_of, parse_cpuset
from purser.core.kubelet.machine import DiscoveredCore, DiscoveredNode, Machine, NumaNode, discover
from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.lab.kubelet.configuration import KubeletSection, configure
from purser.lab.kubelet.kubelet import Kubelet
from purser.lab.kubelet.node import NodeSettings
from tests.cluster.kubernetes import RealCluster

CPU_STATE = "cpu_manager_state"
CHECKPOINT = Path("device-plugins/kubelet_internal_checkpoint")

Config = Mapping[str, Any]
"""Fields of KubeletConfiguration."""


_HASTE = 10
_IMPATIENT = {"cpuManagerReconcilePeriod": f"{10 // _HASTE}s", "nodeStatusUpdateFrequency": "200ms"}
"""The real one takes back the CPUs of a pod that is gone every ten seconds, unless configured otherwise, and writes the
devices of a plugin that came or went into the node's status as often."""


class _HastyClock(SystemClock):
    """The emulated one's, to the same end."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / _HASTE)


class NodeKubelet(Protocol):
    """A kubelet that can be stopped and started."""

    node: str
    folder: Path
    """Its root: /var/lib/kubelet."""

    async def stop(self) -> None:
        """End it as kill -9 would; pods stay."""

    async def start(self, config: Config | None = None) -> None:
        """Start it, with another configuration where one is given; returns once plugins may register."""

    async def environment(self, namespace: str, pod: str, uid: str, container: str) -> dict[str, str]:
        """What a running container was started with."""


class RealKubelet:
    """The one of the cluster."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self.folder = cluster.kubelet_folder
        self.node = cluster.node_name

    async def stop(self) -> None:
        await asyncio.to_thread(self._cluster.kill_kubelet)

    async def start(self, config: Config | None = None) -> None:
        if config is not None:
            config = {**config, **_IMPATIENT}
        await asyncio.to_thread(self._cluster.start_kubelet, config)

    async def environment(self, namespace: str, pod: str, uid: str, container: str) -> dict[str, str]:
        return await asyncio.to_thread(self._cluster.container_env, namespace, pod, container)


class EmulatedKubelet:
    """The lab's, as a second node of the same cluster: of the same version, and on what it takes for this machine."""

    def __init__(self, node: str, version: str, folder: Path, client: Client) -> None:
        self.node = node
        self.folder = folder
        self._version = version
        self._client = client
        self._machine = this_machine()
        self._config: Config = {}
        self._kubelet: Kubelet | None = None
        self._running: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = self._kubelet = None

    async def start(self, config: Config | None = None) -> None:
        if config is not None:
            self._config = config
            (self.folder / CPU_STATE).unlink(missing_ok=True)
        section = msgspec.convert({"version": self._version, **self._config}, KubeletSection)
        settings = NodeSettings(self.node, machine=self._machine, kubelet=configure(section, self._machine))
        self._kubelet = Kubelet(settings, self.folder, self._client, clock=_HastyClock())
        self._running = asyncio.create_task(self._kubelet.run())
        started = asyncio.create_task(self._kubelet.started.wait())
        await asyncio.wait([self._running, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._running.done():
            await self._running

    async def environment(self, namespace: str, pod: str, uid: str, container: str) -> dict[str, str]:
        assert self._kubelet is not None
        record = self._kubelet.runtime.get(uid, container)
        assert record is not None, f"{pod}/{container} was not started"
        return record.env


def this_machine() -> Machine:
    """This machine as cadvisor finds it: kubelet's CPU manager must see the same one in both."""
    cpus = Path("/sys/devices/system/cpu")
    cores = {_threads(path): _socket(path) for path in cpus.glob("cpu[0-9]*") if (path / "topology").exists()}
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # One NUMA node: the tests' machine has no more, and where it has, both kubelets are given devices of node 0 alone.
    node = NumaNode(0, {"memory": memory}, (10,))
    found = [DiscoveredCore(threads, socket) for threads, socket in sorted(cores.items())]
    return discover([DiscoveredNode(node, tuple(found))], len(set(cores.values())))


def _threads(cpu: Path) -> tuple[int, ...]:
    return cpus_of(parse_cpuset((cpu / "topology" / "thread_siblings_list").read_text().strip()))


def _socket(cpu: Path) -> int:
    return int((cpu / "topology" / "physical_package_id").read_text())
