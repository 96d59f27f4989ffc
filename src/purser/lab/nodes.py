"""One emulated node: a kubelet, a simulated driver, and what of Purser runs on a node."""

import asyncio
from collections import Counter
from collections.abc import Callable

import grpc
import structlog

from purser.agent import mig
from purser.agent.health.memory import BOOT_ID
from purser.agent.host import discovery
from purser.agent.kubeletapi.channels import UNIX_SOCKET_OPTIONS
from purser.agent.kubeletapi.podresources.v1 import api_pb2, api_pb2_grpc
from purser.agent.run import run as run_agent
from purser.agent.settings import AgentSettings, SharingSettings, SriovSettings
from purser.core.device.ids import uuid_of
from purser.core.kubelet.errors import KubeletStartError
from purser.core.names import GPU_RESOURCE
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.lab.agentpod import is_agent_pod, mount_config_map, settings_of_pod
from purser.lab.components import Component
from purser.lab.driver import SimulatedDriver
from purser.lab.driver.sysfs_machine import write_machine
from purser.lab.driver.sysfs_nics import write_nics
from purser.lab.folders import NodeFolders
from purser.lab.hollow.node import nfd_labels
from purser.lab.kubelet.kubelet import Kubelet
from purser.lab.kubelet.node import NodeSettings
from purser.lab.kubelet.pods import Raw
from purser.lab.kubelet.runtime import ContainerRecord
from purser.lab.settings import LabSettings, NodeChoice
from purser.operator.manifests import GPU_DISCOVERY
from purser.operator.names import OPERAND_LABEL
from purser.operator.order import Operand

_SYSTEMD_RESTART_S = 1.0
"""The emulated unit's RestartSec: the constant pause of systemd after kubelet exited."""

log = structlog.get_logger("purser.lab")

AGENT_USER = "system:serviceaccount:purser-system:purser-agent"

_OS, _OS_VERSION = "ubuntu", "22.04"
NFD_LABELS = nfd_labels(_OS, _OS_VERSION, "0.0.0", has_gpu=True)
"""What node-feature-discovery would say of an emulated node."""

PodKey = tuple[str, str, str]
"""(namespace, pod, container)."""


def kubelet_user(node: str) -> str:
    """Who a node's kubelet is for the API server."""
    return f"system:node:{node}"


class EmulatedNode:
    """The processes of one node. ``credentials`` gives the API server's address for a user name, ``kubelet_port`` is
    where the API server is to ask for logs, 0 for nowhere."""

    def __init__(
        self,
        choice: NodeChoice,
        settings: LabSettings,
        folders: NodeFolders,
        credentials: Callable[[str], ClusterConfig],
        kubelet_port: int = 0,
        metrics_port: int = 0,
    ) -> None:
        """``metrics_port``: of the agent; 0 picks a free one."""
        self.name = choice.name
        self.rejections = Counter[str]()
        """How many pods its kubelets refused, by reason."""
        self.metrics_port = metrics_port
        """Where the agent serves its metrics; 0: nobody knows before it does."""
        self.sriov = SriovSettings()
        """Of the next agent: its pools of SR-IOV devices, which the files below the node's host root have."""
        if choice.profile.nics:
            self.sriov = SriovSettings(config=write_nics(folders.host_root, choice.profile))
        self._metrics_port = metrics_port
        self._choice = choice
        self._settings = settings
        self._folders = folders
        self._credentials = credentials
        self._kubelet_port = kubelet_port
        self._kubelet_started = asyncio.Event()
        self.driver = SimulatedDriver.create(folders.driver, choice.name, choice.profile)
        write_machine(self.driver.sysfs_root, choice.profile.machine)
        boot_id = folders.host_root / BOOT_ID
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text(f"{choice.name}\n", encoding="ascii")  # as the kubelet's; the node never reboots
        self.runtime = folders.runtime()
        self.processes = folders.processes(self.driver)
        self.kubelet = Component(f"kubelet {choice.name}", self._run_kubelet)
        self.agent = Component(f"agent {choice.name}", self._run_agent)
        self._operands: dict[str, Component] = {
            Operand.DEVICE_PLUGIN: self.agent,
            GPU_DISCOVERY: Component(f"discovery {choice.name}", self._run_discovery),
            Operand.MIG_MANAGER: Component(f"MIG worker {choice.name}", self._run_mig_worker),
        }
        """What really runs in the operator's pods."""
        self._agent_pod: Raw | None = None
        """The operator's, whose options the agent has; None: it has the lab's."""
        self._told_missing_plugin = False
        self._mig_pod: Raw | None = None
        """The operator's, whose layouts the MIG worker has."""

    def start(self, *, with_agent: bool = True) -> None:
        """Start kubelet and agent; the agent not where a pod of the operator's device plugin is to bring it."""
        self.kubelet.start()
        if with_agent:
            self.agent.start()

    async def stop(self) -> None:
        """End everything at once: the cluster ends with it, so agents have nothing to publish."""
        self.driver.end_hanging()  # the process ends when no thread is in a call any more
        await asyncio.gather(*(each.kill() for each in self._operands.values()))
        await self.kubelet.kill()

    async def restart_kubelet(self) -> None:
        """End kubelet and start it again; returns once its sockets are there."""
        await self.kubelet.kill()
        self._kubelet_started.clear()
        self.kubelet.start()
        await self._kubelet_started.wait()

    def container(self, pod_uid: str, container: str) -> ContainerRecord | None:
        """What a container was started with."""
        return self.runtime.get(pod_uid, container)

    async def pod_resources(self) -> dict[PodKey, dict[str, tuple[str, ...]]]:
        """What kubelet's own PodResources API lists: sorted device ids by resource."""
        target = f"unix:{self._folders.kubelet / 'pod-resources' / 'kubelet.sock'}"
        async with grpc.aio.insecure_channel(target, options=UNIX_SOCKET_OPTIONS) as channel:
            answer = await api_pb2_grpc.PodResourcesListerStub(channel).List(api_pb2.ListPodResourcesRequest())
        return {
            (pod.namespace, pod.name, container.name): _by_resource(container)
            for pod in answer.pod_resources
            for container in pod.containers
        }

    async def numa_node_of_gpus(self, key: PodKey) -> dict[str, int]:
        """The NUMA node of each GPU that a container holds a part of, by uuid; -1 where the profile has none. kubelet
        does not know this for shared GPUs."""
        held = (await self.pod_resources()).get(key, {}).get(GPU_RESOURCE, ())
        profiles = dict(zip(self.driver.uuids, self._choice.profile.gpus, strict=True))
        places = {uuid: profiles[uuid].numa_node for uuid in map(uuid_of, held)}
        return {uuid: -1 if place is None else place for uuid, place in places.items()}

    def _on_rejection(self, reason: str) -> None:
        self.rejections[reason] += 1

    def _on_metrics_port(self, port: int) -> None:
        self.metrics_port = port

    async def _run_kubelet(self, stop: asyncio.Event) -> None:
        settings = NodeSettings(
            self.name,
            machine=self._choice.profile.machine,
            kubelet=self._settings.kubelet_of(self._choice),
            kubelet_port=self._kubelet_port,
            labels=NFD_LABELS if self._settings.operator else {},
        )
        async with Client(self._credentials(kubelet_user(self.name)), field_manager="kubelet") as client:
            kubelet = await self._started(settings, client)
            async with asyncio.TaskGroup() as group:
                work = group.create_task(kubelet.run())
                await kubelet.started.wait()
                self._kubelet_started.set()
                await stop.wait()
                work.cancel()

    async def _started(self, settings: NodeSettings, client: Client) -> Kubelet:
        """A running kubelet. One that fails to start is restarted, as systemd does it (`Restart=always`)."""
        reported = ""
        while True:
            try:
                return Kubelet(
                    settings,
                    self._folders.kubelet,
                    client,
                    on_rejection=self._on_rejection,
                    process_of=self._process_of,
                    on_end=self.processes.end_pod,
                )
            except KubeletStartError as error:
                if str(error) != reported:
                    reported = str(error)
                    log.error("A node's kubelet failed to start", node=self.name, error=reported)
            await asyncio.sleep(_SYSTEMD_RESTART_S)

    def _process_of(self, pod: Raw) -> Component | None:
        operand = (pod["metadata"].get("labels") or {}).get(OPERAND_LABEL, "")
        if operand == Operand.DEVICE_PLUGIN and not is_agent_pod(pod):
            self._log_missing_plugin()
            return None
        if operand == Operand.DEVICE_PLUGIN:
            self._agent_pod = pod
        elif operand == Operand.MIG_MANAGER:
            self._mig_pod = pod
        return self._operands.get(operand) if self._settings.operator else None

    def _log_missing_plugin(self) -> None:
        """Once: it is asked when pods start and when they end."""
        if not self._told_missing_plugin:
            self._told_missing_plugin = True
            log.warning(
                "The lab does not include NVIDIA's device plugin, so the node lists no GPUs. With devicePlugin.flavor"
                " purser, the lab runs Purser's agent instead",
                node=self.name,
            )

    async def _run_discovery(self, stop: asyncio.Event) -> None:
        os_release = self._folders.host_root / "etc/os-release"
        os_release.parent.mkdir(parents=True, exist_ok=True)
        os_release.write_text(f"ID={_OS}\nVERSION_ID={_OS_VERSION}\n", encoding="ascii")
        settings = discovery.DiscoverySettings(self.name, self._folders.host_root, self.driver.sysfs_root)
        async with Client(self._credentials(AGENT_USER), field_manager="purser-discovery") as client:
            await discovery.run(settings, client, stop)

    async def _run_mig_worker(self, stop: asyncio.Event) -> None:
        """By the layouts of the policy's ConfigMap, which the operator makes where the policy names none."""
        pod, folder, mounted = self._mig_pod, self._folders.agent / "mig", asyncio.Event()
        assert pod is not None
        kubelet = Client(self._credentials(kubelet_user(self.name)), field_manager="kubelet")
        own = Client(self._credentials(AGENT_USER), field_manager="purser-mig-worker")
        async with kubelet as mounting, own as client, asyncio.TaskGroup() as group:
            mount = group.create_task(mount_config_map(mounting, pod, folder, mounted))
            await mounted.wait()
            await mig.run(self.name, client, folder / "config.yaml", self.driver.open_mig, stop)
            mount.cancel()

    async def _run_agent(self, stop: asyncio.Event) -> None:
        settings = AgentSettings(
            node_name=self.name,
            device_plugin_dir=self._folders.kubelet / "device-plugins",
            pod_resources_socket=self._folders.kubelet / "pod-resources" / "kubelet.sock",
            kubelet_dir=self._folders.kubelet,
            sysfs_root=self.driver.sysfs_root,
            state_dir=self._folders.agent / "state",
            host_root=self._folders.host_root,
            slots=self._settings.slots,
            memory_units=self._settings.memory_units,
            managed_resources=self._settings.managed_resources,
            sharing=SharingSettings(folder=self._settings.device_plugin_configs),
            sriov=self.sriov,
            probe_interval_s=self._settings.probe_interval_s,
            recovery_s=2 * self._settings.probe_interval_s,
            reopen_interval_s=3 * self._settings.probe_interval_s,
            metrics_address="127.0.0.1",
            metrics_port=self._metrics_port,
        )
        for path in (settings.state_dir, settings.host_root):
            path.mkdir(parents=True, exist_ok=True)
        pod = self._agent_pod
        if pod is not None:
            settings = settings_of_pod(pod, self.name, settings)
        driver = await asyncio.to_thread(self.driver.open)
        try:
            own = Client(self._credentials(AGENT_USER), field_manager="purser-agent")
            async with own as client, asyncio.TaskGroup() as group:
                mount = group.create_task(self._mount(pod, settings))
                await run_agent(settings, client, driver, stop, on_port=self._on_metrics_port)
                mount.cancel()
        finally:
            # In a thread: closing waits for a running call, and the loop has to serve others meanwhile.
            await asyncio.shield(asyncio.to_thread(driver.close))

    async def _mount(self, pod: Raw | None, settings: AgentSettings) -> None:
        """What kubelet mounts for the agent: the files of the device plugin, where they are the policy's own."""
        if pod is not None and self._settings.device_plugin_configs is None and settings.sharing.folder is not None:
            async with Client(self._credentials(kubelet_user(self.name)), field_manager="kubelet") as client:
                await mount_config_map(client, pod, settings.sharing.folder)


def _by_resource(container: api_pb2.ContainerResources) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for devices in container.devices:
        found.setdefault(devices.resource_name, set()).update(devices.device_ids)
    return {name: tuple(sorted(ids)) for name, ids in found.items()}
