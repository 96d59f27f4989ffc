"""The lab: a control plane of stand-ins or a real one, emulated nodes, and Purser as in production."""

import asyncio
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from purser.core.device.resources import is_gpu_resource
from purser.core.kubelet.report import ReportError, aligns, decode
from purser.core.names import (
    DEFAULT_NAMESPACE,
    INVENTORY_ANNOTATION,
    KUBELET_ANNOTATION,
    SCHEDULER_NAME,
)
from purser.core.node.amounts import AMOUNTS
from purser.core.vendors.catalogue import FAMILY_NAMES
from purser.core.wording import counted
from purser.kube.client import Client
from purser.kube.config import ClusterConfig
from purser.kube.errors import AlreadyExistsError
from purser.kube.objects import Node
from purser.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, VALIDATING_WEBHOOKS
from purser.kube.retrying import retry_until_accepted
from purser.kube.watching import Change
from purser.lab import profile
from purser.lab.apiserver import LogOptions
from purser.lab.components import Component
from purser.lab.controllers.manager import run_controllers, run_scheduler
from purser.lab.controlplane.plane import ADMIN, ControlPlane, EmbeddedControlPlane
from purser.lab.controlplane.programs import CONTROLLER_MANAGER, Programs
from purser.lab.controlplane.real import CONTROLLERS_USER, MASTERS, RealControlPlane, SchedulerProcess
from purser.lab.folders import node_folders
from purser.lab.hollow import HollowFleet, HollowNodes, manifests
from purser.lab.in_memory import folder_in_memory
from purser.lab.managed import managed_names
from purser.lab.nodes import AGENT_USER, EmulatedNode, kubelet_user
from purser.lab.operatorpart import OPERATOR_USER, run_operator
from purser.lab.ports import free_ports
from purser.lab.settings import LabSettings
from purser.operator.chart_hooks import apply_definition
from purser.scheduler.run import Addresses
from purser.scheduler.run import run as run_purser_scheduler
from purser.scheduler.settings import DecisionLogSettings, SchedulerSettings, ServerSettings, UrlTarget, WebhookSettings
from purser.scheduler.webhook import mutating_configuration, validating_configuration

log = structlog.get_logger("purser.lab")

SCHEDULER_USER = f"system:serviceaccount:{DEFAULT_NAMESPACE}:purser-scheduler"
_LOCALHOST = "127.0.0.1"
_WEBHOOK = WebhookSettings(target=UrlTarget(_LOCALHOST), scheduler_user=SCHEDULER_USER)
# Every agent keeps one thread in a call that waits for the driver's events, and uses another for probes.
_THREADS_PER_NODE = 3
_SCHEDULERS_USER = "system:kube-scheduler"
API_SERVER, CONTROLLERS = "API server", "controllers"
DEFAULT_SCHEDULER, KUBE_SCHEDULER = "default-scheduler", "purser's kube-scheduler"
PARTS = (API_SERVER, CONTROLLERS, DEFAULT_SCHEDULER, KUBE_SCHEDULER)
"""What of a cluster is a stand-in, or real."""


class Lab:
    """A cluster in this process. An async context manager: on entry everything is started, at the end it is gone.

    ``say`` is called with the steps of the start."""

    def __init__(self, settings: LabSettings, say: Callable[[str], None] = lambda _: None) -> None:
        self.settings = replace(settings, managed_resources=managed_names(settings))
        self._say = say
        self.nodes: dict[str, EmulatedNode] = {}
        self._stack = AsyncExitStack()
        self._scheduler_at = Addresses(webhook=0, extender=0, metrics=0, read_api=0)
        """Any free ports at its first start, the same ones ever after: kube-scheduler's configuration names one."""
        self._scheduler_ready = asyncio.Event()
        self.controllers = Component(CONTROLLERS, self._run_controllers)
        self.default_scheduler = Component(DEFAULT_SCHEDULER, self._run_default_scheduler)
        self.kube_scheduler = Component(KUBE_SCHEDULER, self._run_kube_scheduler)
        self.scheduler = Component("purser scheduler", self._run_purser)
        self.hollow = Component("hollow nodes", self._run_hollow)
        self.operator = Component("purser operator", self._run_operator)
        self.operator_metrics_port = 0
        """Where the operator serves its metrics, once it is ready."""
        self._operator_ready = asyncio.Event()

    async def __aenter__(self) -> "Lab":
        """Start everything; `ready` waits until pods can be scheduled."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._plane.kubeconfig(ADMIN)

    @property
    def url(self) -> str:
        """The API server's address."""
        return self._plane.url

    @property
    def real(self) -> Mapping[str, str]:
        """The parts that are not stand-ins: programs by what is named in PARTS."""
        return self._plane.real

    @property
    def scheduler_metrics_port(self) -> int:
        """Where Purser's scheduler serves its metrics, once it is ready."""
        return self._scheduler_at.metrics

    @property
    def read_api_port(self) -> int:
        """Where Purser's scheduler serves its read API, once it is ready."""
        return self._scheduler_at.read_api or 0

    @property
    def scheduler_ports(self) -> tuple[int, ...]:
        """Where Purser's scheduler answers over TLS, once it is ready."""
        return (self._scheduler_at.webhook, self._scheduler_at.extender)

    async def ready(self) -> None:
        """Wait until Purser's scheduler answers, and every node lists its devices and reports its kubelet. With the
        operator, devices come with a ClusterPolicy only: then the operator is waited for."""
        self._say("Starting Purser's scheduler")
        await self._scheduler_ready.wait()
        if self.settings.operator:
            self._say("Starting Purser's operator")
            await self._operator_ready.wait()
            return
        self._say("Waiting for the nodes' GPUs")
        # Listed first: a watch that begins with what there is wants a newer etcd than Debian's.
        found = await self.client.list(NODES)
        waiting = set(self.nodes) - {node.metadata.name for node in found.items if _offers_devices(node)}
        if not waiting:
            return
        async with self.client.watch(NODES, resource_version=found.resource_version) as events:
            async for event in events:
                if isinstance(event, Change) and _offers_devices(event.object):
                    waiting.discard(event.object.metadata.name)
                if not waiting:
                    return

    # --- faults

    def lose_gpu(self, node: str, gpu: int | str) -> None:
        """A GPU falls off the bus."""
        self.nodes[node].driver.lose_gpu(gpu)

    def recover_gpu(self, node: str, gpu: int | str) -> None:
        """A lost GPU is back after a reset."""
        self.nodes[node].driver.recover_gpu(gpu)

    def inject_xid(self, node: str, gpu: int | str, xid: int) -> None:
        """The driver reports an Xid error."""
        self.nodes[node].driver.inject_xid(gpu, xid)

    async def restart_kubelet(self, node: str) -> None:
        """End a kubelet and start it again."""
        await self.nodes[node].restart_kubelet()

    async def kill_agent(self, node: str) -> None:
        """End a node's agent without asking."""
        await self.nodes[node].agent.kill()

    def start_agent(self, node: str) -> None:
        """Start it again."""
        self.nodes[node].agent.start()

    async def kill_scheduler(self) -> None:
        """End Purser's scheduler process without asking: extender and webhook are gone."""
        await self.scheduler.kill()
        self._scheduler_ready.clear()

    async def start_scheduler(self) -> None:
        """Start it again; returns once it is ready."""
        self.scheduler.start()
        await self._scheduler_ready.wait()

    async def cut_api_server(self, away_s: float) -> None:
        """Cut every connection to the lab's own API server, watches included, and answer no requests for this long."""
        if isinstance(self._plane, EmbeddedControlPlane):
            await self._plane.cut(away_s)

    async def kill_operator(self) -> None:
        """End Purser's operator without asking, wherever it is."""
        await self.operator.kill()
        self._operator_ready.clear()

    async def start_operator(self) -> None:
        """Start it again; returns once it knows the cluster."""
        self.operator.start()
        await self._operator_ready.wait()

    # --- start and stop

    async def _start(self) -> None:
        nodes = self.settings.nodes
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8 + _THREADS_PER_NODE * len(nodes)))
        self.folder = self._make_folder()
        self._say("Starting the API server")
        self._plane: ControlPlane = await self._stack.enter_async_context(self._control_plane())
        self._kubelet_port = await self._plane.serve_logs(self._logs)
        self.client = await self._stack.enter_async_context(Client(self._credentials(ADMIN)))
        await _ensure_namespace(self.client, DEFAULT_NAMESPACE)
        for component in (self.controllers, self.default_scheduler, self.scheduler, self.kube_scheduler):
            if component.name not in self._plane.real:
                component.start()
                self._stack.push_async_callback(component.kill)
        self._stack.push_async_callback(self._stop_nodes)
        self._say(f"Setting up {counted(len(nodes), 'node')} (the first run compiles the simulated NVIDIA driver)")
        # With the operator agents begin later, and people are told their ports before.
        ports = free_ports(len(nodes)) if self.settings.operator else [0] * len(nodes)
        made = (asyncio.to_thread(self._make_node, place, port) for place, port in enumerate(ports))
        for node in await asyncio.gather(*made):
            self.nodes[node.name] = node
            node.start(with_agent=not self.settings.operator)
        if self.settings.hollow:
            await self.add_hollow_nodes(*self.settings.hollow)
            self._start_component(self.hollow)
        if self.settings.operator:
            await apply_definition(self.client)
            self._start_component(self.operator)

    async def add_hollow_nodes(self, *nodes: HollowNodes) -> None:
        """Have more hollow nodes join; their kubelets run in labs that began with some."""
        for each in nodes:
            await asyncio.gather(*(self.client.create(NODES, body) for body in manifests(each)))

    def _start_component(self, component: Component) -> None:
        component.start()
        self._stack.push_async_callback(component.kill)

    def _make_folder(self) -> Path:
        if self.settings.folder is not None:
            self.settings.folder.mkdir(parents=True, exist_ok=True)
            return self.settings.folder
        # Paths of sockets have at most 107 characters: a deep TMPDIR will not do.
        parent = folder_in_memory() or tempfile.gettempdir()
        folder = Path(tempfile.mkdtemp(prefix="purser-", dir=parent if len(parent) < 25 else "/tmp"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _make_node(self, place: int, metrics_port: int) -> EmulatedNode:
        choice, folders = self.settings.nodes[place], node_folders(self.folder, place)
        return EmulatedNode(choice, self.settings, folders, self._credentials, self._kubelet_port, metrics_port)

    async def _stop_nodes(self) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))

    def _control_plane(self) -> EmbeddedControlPlane | RealControlPlane:
        programs = self.settings.programs
        if programs is None:
            return EmbeddedControlPlane(self.folder, self.settings.port)
        # kube-scheduler's configuration names Purser's port before Purser listens there.
        self._scheduler_at = Addresses(*free_ports(4))
        return RealControlPlane(
            programs,
            self.folder,
            self.settings.port,
            self._users(programs),
            (
                SchedulerProcess(DEFAULT_SCHEDULER, _SCHEDULERS_USER, {}),
                SchedulerProcess(
                    KUBE_SCHEDULER,
                    SCHEDULER_USER,
                    profile.configuration(self._scheduler_at.extender, self.settings.managed_resources),
                ),
            ),
            api_server=API_SERVER,
            controllers=CONTROLLERS,
        )

    def _users(self, programs: Programs) -> dict[str, Sequence[str]]:
        """Everybody who logs in to a real API server, with their groups. Nodes may do what nodes may; Purser's roles
        are its chart's, which is not here."""
        controllers: Sequence[str] = () if programs.has(CONTROLLER_MANAGER) else MASTERS
        nodes = {kubelet_user(choice.name): ("system:nodes",) for choice in self.settings.nodes}
        master_users = dict.fromkeys((SCHEDULER_USER, AGENT_USER, OPERATOR_USER), MASTERS)
        return {CONTROLLERS_USER: controllers, _SCHEDULERS_USER: (), **master_users, **nodes}

    def _credentials(self, user: str) -> ClusterConfig:
        """How a component logs in."""
        return ClusterConfig.load(self._plane.kubeconfig(user))

    # --- what runs

    async def _run_controllers(self, stop: asyncio.Event) -> None:
        async with Client(self._credentials(CONTROLLERS_USER)) as client:
            await _run_until(stop, run_controllers(client))

    async def _run_default_scheduler(self, stop: asyncio.Event) -> None:
        async with Client(self._credentials(_SCHEDULERS_USER)) as client:
            await _run_until(stop, run_scheduler(client, DEFAULT_SCHEDULER))

    async def _run_kube_scheduler(self, stop: asyncio.Event) -> None:
        await self._scheduler_ready.wait()
        extender = profile.extender(self._scheduler_at.extender, self.settings.managed_resources)
        # As in deploy/helm/purser: loopback, and the certificate is Purser's own and rotates.
        tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls_context.check_hostname, tls_context.verify_mode = False, ssl.CERT_NONE
        async with Client(self._credentials(SCHEDULER_USER)) as client:
            await _run_until(stop, run_scheduler(client, SCHEDULER_NAME, [extender], context=tls_context))

    async def _run_hollow(self, stop: asyncio.Event) -> None:
        async with Client(self._credentials(ADMIN), field_manager="kubelet") as client:
            fleet = HollowFleet(client, renews_leases=CONTROLLERS in self._plane.real)
            await _run_until(stop, fleet.run())

    async def _run_operator(self, stop: asyncio.Event) -> None:
        config, apart_s = self._credentials(OPERATOR_USER), self.settings.operator_rounds_apart_s
        await run_operator(config, stop, self._on_operator_ready, rounds_apart_s=apart_s)

    def _on_operator_ready(self, port: int) -> None:
        self.operator_metrics_port = port
        self._operator_ready.set()

    async def _run_purser(self, stop: asyncio.Event) -> None:
        settings = SchedulerSettings(
            server=ServerSettings(
                webhook_address=_LOCALHOST,
                webhook_port=self._scheduler_at.webhook,
                extender_address=_LOCALHOST,
                extender_port=self._scheduler_at.extender,
                metrics_address=_LOCALHOST,
                metrics_port=self._scheduler_at.metrics,
                read_api_address=_LOCALHOST,
                read_api_port=self._scheduler_at.read_api,
            ),
            webhook=_WEBHOOK,
            adopted_scheduler_names=self.settings.adopted_scheduler_names,
            served_scheduler_names=self.settings.served_scheduler_names,
            memory_units=self.settings.memory_units,
            managed_resources=self.settings.managed_resources,
            vendors=FAMILY_NAMES,
            vendor_accounts=(ADMIN,),
            decision_log=DecisionLogSettings(self.settings.decision_log_folder),
        )
        config = self._credentials(SCHEDULER_USER)
        await run_purser_scheduler(settings, config, stop, self._on_scheduler_ready, self._install_webhooks)

    async def _install_webhooks(self, addresses: Addresses) -> None:
        """In place of the Helm chart, as soon as the API server is there."""
        target = _WEBHOOK.target_at(addresses.webhook)

        async def apply() -> None:
            await self.client.apply(MUTATING_WEBHOOKS, mutating_configuration(_WEBHOOK, target), force=True)
            await self.client.apply(VALIDATING_WEBHOOKS, validating_configuration(_WEBHOOK, target), force=True)

        await retry_until_accepted(apply, "Failed to write the webhook configurations, retrying")

    def _on_scheduler_ready(self, addresses: Addresses) -> None:
        self._scheduler_at = addresses
        self._scheduler_ready.set()

    async def _logs(self, pod: dict[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """What a container would see of its devices: its environment, as ``env`` prints it."""
        node = self.nodes.get(pod["spec"].get("nodeName", ""))
        container = options.container or pod["spec"]["containers"][0]["name"]
        record = node.container(pod["metadata"]["uid"], container) if node else None
        for key, value in sorted(record.env.items()) if record else ():
            yield f"{key}={value}\n".encode()


async def _run_until(stop: asyncio.Event, work: Any) -> None:
    """Run ``work`` until it fails or the event is set."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await stop.wait()
        task.cancel()


async def _ensure_namespace(client: Client, name: str) -> None:
    try:
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    except AlreadyExistsError:
        return


def _offers_devices(node: Node) -> bool:
    """Under whichever names: the device plugin's file may rename every GPU."""
    allocatable, annotations = node.status.allocatable, node.metadata.annotations
    return (
        any(is_gpu_resource(name) and int(amount) > 0 for name, amount in allocatable.items())
        and all(name in allocatable for name in AMOUNTS)
        and INVENTORY_ANNOTATION in annotations
        and _is_complete_report(annotations.get(KUBELET_ANNOTATION))
    )


def _is_complete_report(report: str | None) -> bool:
    """The report on a kubelet that aligns has only its configuration until kubelet has written its files."""
    if not report:
        return False
    try:
        topology = decode(report)
    except ReportError:
        return True  # It will not become better.
    return topology.machine is not None or not aligns(topology.config)
