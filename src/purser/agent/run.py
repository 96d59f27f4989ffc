"""Composes one node's agent and runs it until it is stopped.

Nothing here is global: several agents live in one process in the lab.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import structlog

from purser.agent.allocation.answers import AllocationFacts
from purser.agent.allocation.arbiter import Arbiter
from purser.agent.allocation.book import open_book
from purser.agent.allocation.evictions import make_evict
from purser.agent.allocation.instance_users import NodeInstanceUsers
from purser.agent.allocation.invariants import BookInvariantWatch
from purser.agent.allocation.janitor import Janitor
from purser.agent.allocation.lingering import LingeringPods
from purser.agent.allocation.listing import listing_of
from purser.agent.allocation.node_files import NodeFiles
from purser.agent.allocation.pods import NodePods
from purser.agent.allocation.processes import find_pods_with_processes
from purser.agent.allocation.resolver import Resolver
from purser.agent.cdi.writing import CdiWriter
from purser.agent.features import FeatureLabels
from purser.agent.health.evicting import UnhealthyEvictions
from purser.agent.health.memory import HealthMemory, boot_id
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.health.remedies import RemedyWorker
from purser.agent.host.latest import Latest
from purser.agent.instances import GpuPartitioning, InstanceAllocator, InstanceManager
from purser.agent.inventory.building import KubeletDevice, advertise, devices_by_uuid
from purser.agent.inventory.known_gpus import KnownGpus
from purser.agent.inventory.mps_capability import mps_obstacle
from purser.agent.kubelet.facts import KubeletFacts
from purser.agent.kubelet.plugin import ResourcePlugin
from purser.agent.kubelet.pod_resources import KubeletBooks
from purser.agent.kubelet.refusals import AllocationRefused
from purser.agent.kubelet.registration import PluginRegistrations
from purser.agent.metrics import AgentMetrics
from purser.agent.monitoring import Auditor, GpuMonitoring, NodeSnapshot, NodeStateCollector
from purser.agent.mps.control import MpsControl
from purser.agent.mps.daemons import MpsDaemons
from purser.agent.mps.programs import find_programs
from purser.agent.nvml.driver import Driver
from purser.agent.reporting.amounts import NodeAmounts
from purser.agent.reporting.disputes import DisputeWatch
from purser.agent.reporting.events import DisputeEvents, HealthEvents, MpsEvents, NodeEvents, mig_parents
from purser.agent.reporting.publisher import Publisher
from purser.agent.settings import AgentSettings, EnforcementChoice
from purser.agent.sharing import SharingConfigWatch
from purser.agent.sharing.device_lists import DeviceList
from purser.core.model import DeviceMode, Grant
from purser.core.node.cordons import cordoned_gpus
from purser.core.vendors.hami_nodes import REGISTER_ANNOTATION
from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.objects import Node, Pod
from purser.kube.racing import until
from purser.kube.resources import NODES
from purser.telemetry import listening, telemetry_app

if TYPE_CHECKING:
    from purser.agent.sriov import SriovPlugins

log = structlog.get_logger("purser.agent")

COMPONENT = "purser-agent"

SYNC_TIMEOUT_S = 10.0
"""How long the first registration waits for the API server. After that kubelet learns of the devices all the same:
running pods need them, and grants can wait."""


async def run(
    settings: AgentSettings,
    client: Client,
    driver: Driver,
    stop: asyncio.Event,
    *,
    reload: asyncio.Event | None = None,
    find_driver: Callable[[], Driver] | None = None,
    on_port: Callable[[int], None] = lambda port: None,
) -> None:
    """Run one agent until ``stop`` is set or this is cancelled.

    ``reload`` set (SIGHUP) enumerates devices again; ``find_driver`` looks for a driver where ``driver`` is none yet;
    ``on_port`` is called with the HTTP port. The caller closes ``client`` and ``driver``. Raises OSError when the HTTP
    port is taken; all other failures are retried and reported.
    """
    async with (
        KubeletBooks(settings.pod_resources_socket) as kubelet,
        EventRecorder(client, COMPONENT, settings.node_name) as recorder,
    ):
        agent = Agent(settings, client, driver, kubelet, recorder, find_driver)
        await until(agent.run(reload or asyncio.Event(), on_port), agent.leave(stop))
        log.info("The agent has stopped", node=settings.node_name)


class Agent:
    """The parts of one agent and how they hang together."""

    def __init__(
        self,
        settings: AgentSettings,
        client: Client,
        driver: Driver,
        kubelet: KubeletBooks,
        recorder: EventRecorder,
        find_driver: Callable[[], Driver] | None,
    ) -> None:
        self._settings = settings
        self._book = open_book(settings)
        self._pods = NodePods(client, settings.node_name, settings.namespace, self._booked_grant)
        self._events = NodeEvents(recorder, settings.node_name, self._pods)
        events = HealthEvents(
            recorder,
            settings.node_name,
            self._pods,
            self._book,
            lambda: self._monitor.identified(),
            lambda: mig_parents(self._monitor.inventory.value),
        )
        nodes = Informer(client, NODES, field_selector=f"metadata.name={settings.node_name}")
        self._config = SharingConfigWatch(
            settings, nodes, self._events.config_problem, self._events.config_partly_applied
        )
        self._monitor = DeviceMonitor(
            settings,
            driver,
            find_driver,
            events.news,
            events.report_program_error,
            client.failures,
            config=self._config.config,
            on_mismatch=self._events.config_problem,
            on_empty_mig=self._events.empty_mig,
            on_notes=self._events.config_partly_applied,
            memory=HealthMemory.of(settings),
            known=KnownGpus(settings.known_gpus_file, boot_id(settings)),
            mps_ready=lambda: self._mps.ready,
            ungranted_instances=lambda: self._keeper.ungranted(),
        )
        self._files = NodeFiles(settings, lambda: self._monitor.configured.sharing.settings, lambda: self._monitor.gpus)
        self._metrics = AgentMetrics()
        self._mps_events = MpsEvents(
            recorder,
            settings.node_name,
            self._pods,
            self._book,
            self._metrics,
            self._monitor.name,
            self._monitor.renewed,
        )
        self._mps = MpsDaemons(
            MpsControl(settings, lambda: find_programs(settings, self._files.driver_place())),
            self._monitor.inventory,
            self._mps_events,
            client.failures,
            exclusive=settings.mps_exclusive,
            obstacles=lambda: _mps_obstacles(settings, self._monitor),
        )
        self._devices: Latest[tuple[KubeletDevice, ...]] = Latest(())
        self._freed = Latest(0)
        """How often kubelet has let go of devices of pods that ended."""
        client.failures.report_to(self._metrics.registry, recorder)
        self._failures = client.failures
        self._facts = KubeletFacts(settings, kubelet, self._devices, self._metrics.registry)
        self._disputes = DisputeWatch(
            settings.node_name, self._pods, self._book, kubelet, lambda: self._node_facts().devices
        )
        self._dispute_events = DisputeEvents(recorder, settings.node_name, self._pods, self._disputes.report)
        self._cordoned: Latest[tuple[str, ...]] = Latest(())
        self._amounts = NodeAmounts(self._pods, self._monitor.inventory, self._cordoned, dict(settings.memory_units))
        self._registration = PluginRegistrations(
            settings, self._devices, self._make_plugin, self._metrics, client.failures
        )
        self._sriov = self._make_sriov(kubelet) if settings.sriov.config is not None else None
        self._publisher = Publisher(
            client,
            nodes,
            settings.node_name,
            self._monitor.inventory,
            self._facts.report,
            self._disputes,
            self._amounts.listed,
            self._registration.connection,
            self._monitor.condition,
            self._sriov.pcie if self._sriov is not None else None,
        )
        nodes.add_handler(on_add=self._on_node, on_update=lambda _, node: self._on_node(node))
        self._cdi = CdiWriter(settings, self._monitor.configured.basis, lambda: bool(self._book.pods))
        self._features = FeatureLabels(settings, client, self._monitor.configured.basis, nodes)
        self._keeper = InstanceManager(
            settings.state_dir,
            lambda: self._monitor.driver,
            NodeInstanceUsers(self._pods, self._book, kubelet),
            self._on_partitioned,
            client.failures,
            SystemClock(),
        )
        self._instances = InstanceAllocator(self._keeper, self._files.make_device_files, self._listed_by_cdi)
        changed = self._keeper.grants_changed
        self._pods.pods.add_handler(
            on_add=lambda _: changed(), on_update=lambda *_: changed(), on_delete=lambda _: changed()
        )
        resolver = Resolver(kubelet, self._pods, self._book, SystemClock(), settings.resolve_timeout_s)
        self._arbiter = Arbiter(
            settings,
            kubelet,
            self._pods,
            self._book,
            resolver,
            self._node_facts,
            self._instances,
            LingeringPods(self._book, find_pods_with_processes),
            self._events.enforcement_changed,
        )
        self._janitor = Janitor(
            self._pods, self._book, self._arbiter, kubelet, self._note_freed_devices, self._keeper.look_again
        )
        self._invariants = BookInvariantWatch(self._book, kubelet, self._metrics, SystemClock())
        auditor = Auditor(
            recorder,
            settings.node_name,
            self._pods,
            self._monitor.identified,
            make_evict(client) if settings.evict_over_users else None,
        )
        self._monitoring = GpuMonitoring(
            settings,
            self._monitor,
            self._pods,
            self._book,
            kubelet,
            auditor,
            client.failures,
            with_mig_devices=self._instances.of_grant,
        )
        self._remedies = RemedyWorker(
            settings, client, nodes, self._monitor, self._pods, self._book, kubelet, recorder, client.failures
        )
        self._unhealthy_evictions = (
            UnhealthyEvictions(self._monitor, events, recorder, make_evict(client), SystemClock())
            if settings.evict_from_unhealthy_gpus
            else None
        )
        self._metrics.registry.register(NodeStateCollector(self._snapshot))

    async def run(self, reload: asyncio.Event, on_port: Callable[[int], None]) -> None:
        """Run everything until cancelled."""
        app = telemetry_app(self._metrics.registry, self._problems, self._monitoring.compatible)
        async with listening(app, self._settings.metrics_address, self._settings.metrics_port) as port:
            on_port(port)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._failures.keep_going("following the configuration", self._config.run))
                tasks.create_task(self._monitor.run(reload))
                tasks.create_task(self._mps.run())
                tasks.create_task(self._failures.keep_going("GPU instances", self._keeper.run))
                tasks.create_task(self._failures.keep_going("following GPU instances", self._follow_partitions))
                tasks.create_task(self._wake_instance_manager())
                tasks.create_task(self._publisher.run())
                tasks.create_task(self._amounts.run())
                tasks.create_task(self._features.run())
                tasks.create_task(self._failures.keep_going("CDI specifications", self._cdi.run))
                tasks.create_task(self._monitoring.run())
                tasks.create_task(self._remedies.run())
                if self._unhealthy_evictions is not None:
                    run = self._unhealthy_evictions.run
                    tasks.create_task(self._failures.keep_going("evictions from unhealthy GPUs", run))
                tasks.create_task(self._failures.keep_going("kubelet's facts", self._facts.run))
                tasks.create_task(self._disputes.run())
                tasks.create_task(self._failures.keep_going("disputes", self._dispute_events.run))
                tasks.create_task(self._pods.pods.run())
                tasks.create_task(self._pods.key_maps.run())
                tasks.create_task(self._failures.keep_going("advertising", self._advertise_forever))
                if self._sriov is not None:
                    tasks.create_task(self._sriov.run())
                tasks.create_task(self._serve_kubelet())

    async def leave(self, stop: asyncio.Event) -> None:
        """Return when the agent may stop: after ``stop``, once kubelet has asked for all pods that were bound by then.

        kubelet reports with a delay that its devices are not served, and rejects pods that are bound meanwhile.
        """
        await stop.wait()
        if self._registration.connection.value.streams:
            await self._publisher.leave()
            await SystemClock().sleep(self._settings.in_flight_s)
        await self._mps.leave()

    async def _serve_kubelet(self) -> None:
        """Once the book is right and there is something to hand out."""
        try:
            async with asyncio.timeout(SYNC_TIMEOUT_S):
                await self._pods.pods.synced()
                await self._pods.key_maps.synced()
        except TimeoutError:
            log.warning("The API server does not answer; using the checkpoint", path=str(self._settings.checkpoint))
        await self._devices.wait_for_change(())
        await self._failures.keep_going("sweeping", self._janitor.sweep)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._failures.keep_going("registrations", self._registration.run))
            tasks.create_task(self._janitor.run())
            tasks.create_task(self._failures.keep_going("invariants", self._invariants.run))

    async def _advertise_forever(self) -> None:
        inventory = self._monitor.inventory.value
        self._advertise()
        while True:
            inventory = await self._monitor.inventory.wait_for_change(inventory)
            self._advertise()

    def _advertise(self) -> None:
        """Send kubelet the devices, and again when the inventory changes or a pod releases a GPU that is gone."""
        inventory = self._monitor.inventory.value
        if inventory is not None:
            self._book.set_inventory(inventory)
            if self._devices.set(advertise(inventory, self._book.held_ids)):
                self._disputes.devices_changed()

    def _note_freed_devices(self) -> None:
        self._freed.set(self._freed.value + 1)
        self._advertise()

    async def _follow_partitions(self) -> None:
        basis = None
        while True:
            basis = await self._monitor.configured.basis.wait_for_change(basis)
            if basis is not None:
                self._keeper.follow(basis.gpus, basis.sharing.settings.mig_strategy)

    async def _wake_instance_manager(self) -> None:
        """Leftovers are known once the pods of the node are."""
        await self._pods.pods.synced()
        await self._pods.key_maps.synced()
        self._keeper.grants_changed()

    def _on_partitioned(self, uuid: str, cut: GpuPartitioning | None) -> None:
        self._monitor.set_mig_devices(uuid, None if cut is None else cut.migs)

    async def _listed_by_cdi(self, devices: Collection[str]) -> None:
        if any(DeviceList(each).is_cdi for each in self._monitor.configured.sharing.settings.device_lists):
            await self._cdi.lists(devices)

    def _make_sriov(self, kubelet: KubeletBooks) -> "SriovPlugins":
        """Imported where there are pools: most agents have none."""
        from purser.agent.sriov import GpuNeighbours, SriovPlugins

        neighbours = GpuNeighbours(kubelet, self._pods, self._monitor.inventory, self._events.nics_distant)
        tell = self._events.warn
        return SriovPlugins(self._settings, kubelet, self._metrics, self._failures, tell, self._on_refused, neighbours)

    def _make_plugin(self, resource: str) -> ResourcePlugin:
        return ResourcePlugin(
            resource, self._devices, self._arbiter, self._metrics, self._on_refused, freed=self._freed
        )

    def _node_facts(self) -> AllocationFacts:
        inventory, held = self._monitor.renewed(), self._monitor.configured.sharing.settings
        nodes = self._files.device_nodes()
        return AllocationFacts(
            devices={} if inventory is None else self._instances.with_devices(devices_by_uuid(inventory)),
            library_dir=str(self._settings.hami_core_dir),
            lock_dir=str(self._settings.hami_lock_dir),
            listing=listing_of(held, self._monitor.gpus, nodes.there, self._cdi.classes),
            nodes=nodes if held.pass_device_specs else None,
            mps_exclusive=self._settings.mps_exclusive,
        )

    def _snapshot(self) -> NodeSnapshot:
        connection, pods = self._registration.connection.value, self._monitoring.booked()
        return NodeSnapshot(
            inventory=self._monitor.inventory.value,
            readings=dict(self._monitor.readings),
            usage=dict(self._book.usage),
            pods=pods,
            policies={pod.grant.key: self._pods.node_policy(pod.grant.key) for pod in pods},
            running=self._book.running,
            violations=len(self._book.violations()),
            registered=connection.registered,
            streams=connection.streams,
            disputes=self._disputes.report.value,
            lists_amounts=self._publisher.lists_amounts,
            config_rejected=self._is_config_rejected(),
            measured=self._monitoring.measured,
            pools=self._sriov.counts() if self._sriov is not None else {},
            degraded={uuid: health.reason for uuid, health in self._monitor.health.items() if health.takes_pods},
        )

    def _is_config_rejected(self) -> bool:
        """Be it in part."""
        configured = self._monitor.configured
        whole = self._config.problem or configured.mismatch
        return bool(whole or configured.problems or configured.sharing.problems)

    def _problems(self) -> tuple[str, ...]:
        published = (self._publisher.problem, self._publisher.untried)
        found = (
            self._monitor.trouble,
            *published,
            self._registration.connection.value.problem,
            self._cdi.problem,
            self._sriov.problem if self._sriov is not None else "",
        )
        return tuple(problem for problem in found if problem)

    def _on_node(self, node: Node) -> None:
        self._facts.set_version(node.status.node_info.kubelet_version)
        self._cordoned.set(cordoned_gpus(node.metadata.annotations))
        self._pods.set_hami(is_there=REGISTER_ANNOTATION in node.metadata.annotations)

    def _booked_grant(self, pod: Pod) -> Grant | None:
        booked = self._book.pods.get(pod.metadata.uid)
        return None if booked is None else booked.grant

    def _on_refused(self, refusal: AllocationRefused) -> None:
        if refusal.dispute is not None:
            self._disputes.refused(refusal.dispute)
        self._events.refused(refusal)


def _mps_obstacles(settings: AgentSettings, monitor: DeviceMonitor) -> dict[str, str]:
    """By uuid, why GPUs have no MPS daemon that are to have one."""
    inventory = monitor.inventory.value
    wanted = {each.uuid for each in inventory.devices if each.mode is DeviceMode.MPS} if inventory else set()
    found = {
        uuid: mps_obstacle(gpu, monitor.info.cuda_version)
        for uuid, gpu in monitor.identified().items()
        if uuid in wanted or settings.enforcement is EnforcementChoice.MPS
    }
    return {uuid: why for uuid, why in found.items() if why}
