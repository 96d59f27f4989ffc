"""The node's state as metrics, made at scrape time: devices, grants, disputes, SR-IOV pools, what was measured."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from purser.agent.allocation.book import BookedPod
from purser.agent.monitoring.gauges import Measurements, by_uuid, families
from purser.agent.nvml.driver import DeviceReading
from purser.core.grant.disputes import NodeDisputes
from purser.core.health.fabric import FabricState
from purser.core.kubernetes.quantities import MIB
from purser.core.ledger import NO_USAGE, Usage
from purser.core.model import ContainerGrant, Device, DeviceShare, NodeInventory
from purser.core.pod.phases import phases

_GRANT_LABELS = ("namespace", "pod", "container", "uuid", "enforcement", "policy")


class NodeSnapshot(msgspec.Struct, frozen=True):
    """The node's state at one moment."""

    inventory: NodeInventory | None
    readings: dict[str, DeviceReading]
    usage: dict[str, Usage]
    pods: tuple[BookedPod, ...]
    violations: int
    registered: bool
    streams: int
    disputes: NodeDisputes | None = None
    lists_amounts: bool = False
    config_rejected: bool = False
    """The device plugin's configuration is unusable, and another one holds."""
    policies: Mapping[str, str] = {}
    """The node policy that a pod names, in a word, by its key; pods that name none may be missing."""
    running: frozenset[str] = frozenset()
    """Of the pods, the uids of those whose init containers have ended."""
    degraded: Mapping[str, str] = {}
    """What is wrong with GPUs that take pods all the same, by uuid."""
    measured: Measurements = Measurements()
    pools: Mapping[str, tuple[int, int]] = {}
    """Of SR-IOV by resource: devices that take pods, and devices that do not."""


class NodeStateCollector(Collector):
    """Makes the families out of one snapshot per scrape: nothing is left over from pods and GPUs that are gone."""

    def __init__(self, snapshot: Callable[[], NodeSnapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families."""
        snapshot = self._snapshot()
        yield _gauge(
            "purser_agent_registered", "1 while the plugin is registered with kubelet.", int(snapshot.registered)
        )
        yield _gauge("purser_agent_streams", "Open ListAndWatch streams from kubelet.", snapshot.streams)
        yield _gauge(
            "purser_agent_lists_amounts",
            "1 while the node's status lists the amounts of its GPU resources, such as memory and cores.",
            int(snapshot.lists_amounts),
        )
        yield _gauge(
            "purser_agent_config_rejected",
            "1 while the device plugin's configuration is invalid and another configuration is in effect, or some "
            "entries are ignored.",
            int(snapshot.config_rejected),
        )
        yield _gauge(
            "purser_agent_overcommitted_gpus",
            "GPUs that are overcommitted in the agent's checkpoint. Should be 0.",
            snapshot.violations,
        )
        yield _disputes(snapshot.disputes)
        devices = () if snapshot.inventory is None else snapshot.inventory.devices
        yield from _devices(devices, snapshot.degraded)
        yield from _usage(devices, snapshot.usage)
        yield _uncorrected_errors(snapshot.readings)
        yield _domains(snapshot.readings)
        yield from families(snapshot.measured)
        yield from _grants(snapshot.pods, snapshot.policies, snapshot.running)
        yield _pools(snapshot.pools)


def _pools(pools: Mapping[str, tuple[int, int]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "purser_sriov_devices",
        "Devices in an SR-IOV pool, by whether they are open to new pods.",
        labels=["resource", "state"],
    )
    for resource, counts in sorted(pools.items()):
        for state, count in zip(("healthy", "unhealthy"), counts, strict=True):
            family.add_metric([resource, state], count)
    return family


def _disputes(disputes: NodeDisputes | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "purser_agent_disputed_pods",
        "Pods that hold devices without a valid grant or after they ended (held), and pods that were refused the "
        "devices they were granted (refused).",
        labels=["kind"],
    )
    family.add_metric(["held"], 0 if disputes is None else sum(bool(held.gpus) for held in disputes.held))
    family.add_metric(["refused"], 0 if disputes is None else len(disputes.refused))
    return family


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value)


def _devices(devices: Iterable[Device], degraded: Mapping[str, str]) -> Iterator[Metric]:
    devices = tuple(devices)
    info = GaugeMetricFamily(
        "purser_device_info",
        "1 for every device; enforcement: what enforces the limits of the device's shares.",
        labels=["uuid", "index", "model", "pci_bus_id", "mode", "enforcement"],
    )
    for device in devices:
        words = (device.model, device.pci_bus_id, device.mode.value, device.enforcement.value)
        info.add_metric([device.uuid, str(device.index), *words], 1)
    yield info
    healthy = GaugeMetricFamily(
        "purser_device_healthy",
        "1 while the device is healthy, 0 while it is unhealthy and closed to new pods; reason: why it is unhealthy.",
        labels=["uuid", "reason"],
    )
    for device in devices:
        healthy.add_metric([device.uuid, device.unhealthy_reason], int(device.healthy))
    yield healthy
    family = GaugeMetricFamily(
        "purser_device_degraded", "1 while a GPU is open to new pods but has a problem.", labels=["uuid", "reason"]
    )
    for device in devices:
        reason = degraded.get(device.uuid, "")
        family.add_metric([device.uuid, reason], int(bool(reason)))
    yield family
    yield by_uuid(
        "purser_device_slots", "How many containers may share a device.", ((d.uuid, d.slots) for d in devices)
    )
    yield by_uuid(
        "purser_device_memory_bytes",
        "Memory of a device.",
        ((d.uuid, d.memory_mib * MIB) for d in devices if d.memory_mib),
    )


def _usage(devices: Iterable[Device], usages: dict[str, Usage]) -> Iterator[Metric]:
    """What pods hold, by the ledger: zero for unused devices, and what is held of devices that are gone."""
    uuids = sorted({device.uuid for device in devices} | usages.keys())
    held = [(uuid, usages.get(uuid, NO_USAGE)) for uuid in uuids]
    yield by_uuid(
        "purser_device_granted_slots", "Slots allocated to pods.", ((uuid, usage.slots) for uuid, usage in held)
    )
    yield by_uuid(
        "purser_device_granted_memory_bytes",
        "Memory allocated to pods.",
        ((uuid, usage.memory_mib * MIB) for uuid, usage in held),
    )
    yield by_uuid(
        "purser_device_granted_cores_ratio",
        "Share of the compute allocated to pods.",
        ((uuid, usage.cores_percent / 100) for uuid, usage in held),
    )


def _uncorrected_errors(readings: dict[str, DeviceReading]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "purser_device_ecc_uncorrected_errors", "Uncorrected ECC errors since the driver was loaded.", labels=["uuid"]
    )
    for uuid, reading in sorted(readings.items()):
        if reading.ecc is not None and reading.ecc.uncorrected is not None:
            family.add_metric([uuid], reading.ecc.uncorrected)
    return family


def _domains(readings: dict[str, DeviceReading]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "purser_device_in_nvlink_domain",
        "1 while a GPU is registered with its fabric manager; state: state of the registration; domain: the "
        "NVLink domain that the GPU has joined (cluster UUID, dot, clique).",
        labels=["uuid", "state", "domain"],
    )
    for uuid, reading in sorted(readings.items()):
        if (told := reading.registration) is not None:
            domain = "" if told.ids is None else f"{told.ids.cluster_uuid}.{told.ids.clique}"
            family.add_metric([uuid, told.state.value, domain], int(told.state is FabricState.COMPLETED))
    return family


def _grants(pods: Iterable[BookedPod], policies: Mapping[str, str], running: Container[str]) -> Iterator[Metric]:
    memory = GaugeMetricFamily(
        "purser_grant_memory_bytes",
        "Memory allocated to a container. Later containers reuse an init container's GPU memory, so it counts only "
        "until the pod runs, and only if they are allocated less of that GPU. policy: the node policy that the pod "
        "names; empty: the scheduler's.",
        labels=_GRANT_LABELS,
    )
    cores = GaugeMetricFamily(
        "purser_grant_cores_ratio", "Compute allocated to a container; 0: not limited.", labels=_GRANT_LABELS
    )
    for pod in pods:
        for part, share in _held_at_once(pod, runs=pod.grant.pod_uid in running):
            owner = (pod.grant.namespace, pod.grant.pod, part.container)
            enforcement = pod.containers[part.container].enforcement.value
            labels = [*owner, share.uuid, enforcement, policies.get(pod.grant.key, "")]
            memory.add_metric(labels, share.memory_mib * MIB)
            cores.add_metric(labels, share.cores_percent / 100)
    yield memory
    yield cores


def _held_at_once(pod: BookedPod, *, runs: bool) -> Iterator[tuple[ContainerGrant, DeviceShare]]:
    """What the pod's containers hold, so that sums are right: kubelet gives an app container the devices that an init
    container had before it. Of each GPU that is what containers that run together hold most of."""
    concurrent = tuple(phases([part for part in pod.grant.containers if part.container in pod.containers]))
    of_gpu: dict[str, list[tuple[ContainerGrant, DeviceShare]]] = {}
    for parts in concurrent[-1:] if runs else reversed(concurrent):
        held: dict[str, list[tuple[ContainerGrant, DeviceShare]]] = {}
        for part in parts:
            for share in part.shares:
                held.setdefault(share.uuid, []).append((part, share))
        for uuid, shares in held.items():
            if uuid not in of_gpu or _memory_mib(shares) > _memory_mib(of_gpu[uuid]):
                of_gpu[uuid] = shares
    for shares in of_gpu.values():
        yield from shares


def _memory_mib(shares: Iterable[tuple[ContainerGrant, DeviceShare]]) -> int:
    return sum(share.memory_mib for _, share in shares)
