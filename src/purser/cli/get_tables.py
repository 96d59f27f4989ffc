"""What `purser get` shows: rows, the columns that they fill, and the documents for ``-o json|yaml``."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import add
from typing import Any

import msgspec

from purser.adapters.pods import pod_spec
from purser.adapters.quotas import Quotas
from purser.cli.output import Column
from purser.cli.shown_cluster import ShownCluster
from purser.core.dialects import asks_for_devices
from purser.core.fleet import DeviceState, NodeState
from purser.core.grant.quota import UNLIMITED, Demand, QuotaLimits, grant_demand
from purser.core.grant.reconcile import BookDifference
from purser.core.mig.on_demand import named
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceMode, DeviceShare, Grant, GrantState
from purser.core.names import NO_MIG_DEVICES
from purser.core.pod.phases import largest
from purser.core.state import device_instances
from purser.kube.objects import Pod
from purser.kube.pods import is_terminal
from purser.kube.resource_quotas import ResourceQuota


class GpuStatus(StrEnum):
    """Whether new pods can get a GPU; as `purser get gpus` shows it."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    CORDONED = "Cordoned"
    SCHEDULING_DISABLED = "SchedulingDisabled"
    """Its node is cordoned, as `kubectl get nodes` has it."""
    DISPUTED = "Disputed"
    DEGRADED = "Degraded"
    """It takes new pods, and has a problem."""


@dataclass(frozen=True)
class GpuRow:
    """One GPU, or MIG device."""

    node: NodeState
    state: DeviceState
    is_node_cordoned: bool = False
    pods: tuple[str, ...] = ()
    """That hold a part of it, as ``namespace/name``."""

    @property
    def status(self) -> GpuStatus:
        """The first thing that keeps new pods away, or else what is wrong."""
        if not self.state.device.healthy:
            return GpuStatus.UNHEALTHY
        if self.state.cordoned:
            return GpuStatus.CORDONED
        if self.is_node_cordoned:
            return GpuStatus.SCHEDULING_DISABLED
        if self.state.disputed:
            return GpuStatus.DISPUTED
        return GpuStatus.DEGRADED if self.state.device.degraded_reason else GpuStatus.HEALTHY

    @property
    def reason(self) -> str:
        """Why it is not healthy; empty: it is, or somebody has closed it."""
        device = self.state.device
        return device.unhealthy_reason or self.state.disputed or device.degraded_reason


@dataclass(frozen=True)
class NodeRow:
    """One node with GPUs."""

    node: NodeState
    status: str = ""
    """As `kubectl get nodes` has it; empty: its Node is not known."""


@dataclass(frozen=True)
class GrantRow:
    """What one container holds."""

    grant: Grant
    part: ContainerGrant
    state: str


@dataclass(frozen=True)
class NamespaceRow:
    """What a namespace's pods hold, may hold, and wait for."""

    namespace: str
    pods: int
    waiting: int
    gpus: float
    """As many whole GPUs, by memory."""
    held: Demand
    limits: QuotaLimits


def waiting_by_namespace(pods: Iterable[Pod]) -> Counter[str]:
    """How many pods of each namespace ask for GPUs and are on no node."""
    return Counter(
        pod.metadata.namespace
        for pod in pods
        if not pod.spec.node_name and not is_terminal(pod) and asks_for_devices(pod_spec(pod))
    )


def namespace_rows(
    cluster: ShownCluster, waiting: Mapping[str, int], limits: Mapping[str, QuotaLimits]
) -> list[NamespaceRow]:
    """Every namespace that holds GPUs, has pods that wait for some, or is in ``limits``: a quota over GPU memory or
    compute."""
    grants: dict[str, list[Grant]] = defaultdict(list)
    for grant in cluster.grants:
        grants[grant.namespace].append(grant)
    return [
        NamespaceRow(
            name,
            len(grants[name]),
            waiting.get(name, 0),
            sum(_whole_gpus(cluster, each) for each in grants[name]),
            reduce(add, (grant_demand(each) for each in grants[name] if not each.family), Demand()),
            limits.get(name, UNLIMITED),
        )
        for name in sorted({*grants, *waiting, *limits})
    ]


def limits_by_namespace(quotas: Iterable[ResourceQuota]) -> dict[str, QuotaLimits]:
    """What ResourceQuotas allow of GPU memory and compute; namespaces where none names these are left out."""
    found = Quotas()
    for quota in quotas:
        found.put(quota)
    limits = {name: found.of(name) for name in found.namespaces}
    return {name: each for name, each in limits.items() if each != UNLIMITED}


def namespace_columns() -> list[Column[NamespaceRow]]:
    """Of `purser get namespaces`."""
    return [
        Column("NAMESPACE", lambda row: row.namespace),
        Column("PODS", lambda row: row.pods),
        Column("WAITING", lambda row: row.waiting),
        Column("GPUS", lambda row: f"{row.gpus:.2f}"),
        Column("MEMORY MiB", lambda row: _amount_with_limit(row.held.memory_mib, row.limits.memory_mib)),
        Column("CORES %", lambda row: _amount_with_limit(row.held.cores_percent, row.limits.cores_percent)),
    ]


def namespace_document(row: NamespaceRow) -> dict[str, Any]:
    """One namespace; a limit is null where no quota names it."""
    return {
        "namespace": row.namespace,
        "pods": row.pods,
        "waiting": row.waiting,
        "gpus": round(row.gpus, 3),
        "held": _to_plain_dict(row.held),
        "limits": _to_plain_dict(row.limits),
    }


def _whole_gpus(cluster: ShownCluster, grant: Grant) -> float:
    """By memory, as the pod holds most of it; of GPUs that are gone or whose memory is not known by compute. A MIG
    device is a part of its GPU."""
    state = cluster.nodes.get(grant.node)
    cut = {} if state is None else {gpu.uuid: gpu.memory_mib for gpu in state.inventory.cut}
    devices = () if state is None else tuple(each.device for each in state.devices)
    total = {device.uuid: cut.get(device.parent, device.memory_mib) for device in devices}
    parts = [
        (
            part.kind,
            sum(
                share.memory_mib / total[share.uuid] if total.get(share.uuid) else share.cores_percent / 100
                for share in part.shares
            ),
        )
        for part in grant.containers
    ]
    return largest(parts, 0.0, add, max)


def _amount_with_limit(held: int, limit: int | None) -> str:
    return str(held) if limit is None else f"{held}/{limit}"


def gpu_rows(cluster: ShownCluster) -> list[GpuRow]:
    """Every GPU of every node, those without places for pods included."""
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for grant in sorted(cluster.grants, key=lambda each: each.key):
        for uuid in sorted(grant.uuids):
            holders[grant.node, uuid].append(grant.key)
    return [
        GpuRow(
            node,
            state,
            cluster.is_cordoned(node.name),
            tuple(holders[node.name, state.device.uuid]),
        )
        for node in cluster.nodes.values()
        for state in (*node.devices, *_without_mig_devices(node))
    ]


def node_rows(cluster: ShownCluster) -> list[NodeRow]:
    """Every node that has an inventory."""
    return [NodeRow(node, cluster.status.get(name, "")) for name, node in cluster.nodes.items()]


def grant_rows(cluster: ShownCluster) -> list[GrantRow]:
    """Every container that holds something, by namespace and pod."""
    return [
        GrantRow(grant, part, _state(cluster.states[grant.pod_uid], part))
        for grant in cluster.grants
        for part in grant.containers
    ]


def difference_columns() -> list[Column[BookDifference]]:
    """Of `purser get grants --check`."""
    return [
        Column("DIFFERENCE", lambda each: str(each.kind)),
        Column("NODE", lambda each: each.node),
        Column("POD", lambda each: each.pod),
        Column("GPUS", lambda each: each.uuids),
        Column("DETAIL", lambda each: each.detail),
        Column("SETTLED BY", lambda each: each.settled_by, wide=True),
    ]


def difference_document(each: BookDifference) -> dict[str, Any]:
    """One difference."""
    return {**_to_plain_dict(each), "settled_by": each.settled_by}


def gpu_columns() -> list[Column[GpuRow]]:
    """Of `purser get gpus`."""
    return [
        Column("NODE", lambda row: row.node.name),
        Column("GPU", lambda row: row.state.device.index),
        Column("MODEL", lambda row: row.state.device.model),
        Column("HEALTH", lambda row: str(row.status), coloured=True),
        Column("PODS", lambda row: row.state.usage.pods),
        Column("SLOTS", lambda row: f"{row.state.usage.slots}/{row.state.device.slots}"),
        Column("MEMORY MiB", lambda row: _memory(row.state.usage.memory_mib, row.state.device.memory_mib)),
        Column("CORES %", lambda row: f"{row.state.usage.cores_percent}/{row.state.device.cores_percent}"),
        Column("INSTANCES", lambda row: list(device_instances(row.state)), wide=True),
        Column("RESOURCE", lambda row: row.state.device.resource, wide=True),
        Column("UUID", lambda row: row.state.device.uuid, wide=True),
        Column("PCI", lambda row: row.state.device.pci_bus_id, wide=True),
        Column("NUMA", lambda row: row.state.device.numa_nodes, wide=True),
        Column("MODE", lambda row: str(row.state.device.mode), wide=True),
        Column("ENFORCES", lambda row: str(row.state.device.enforcement), wide=True),
        Column("HELD BY", lambda row: row.pods, wide=True),
        Column("REASON", lambda row: row.reason, wide=True),
    ]


def gpu_document(row: GpuRow) -> dict[str, Any]:
    """One GPU."""
    state = row.state
    closed = {"cordoned": state.cordoned, "disputed": state.disputed}
    held = {"held": _to_plain_dict(state.usage), "pods": list(row.pods)}
    return {
        "node": row.node.name,
        **_to_plain_dict(state.device),
        **closed,
        "node_cordoned": row.is_node_cordoned,
        **held,
    }


def node_columns() -> list[Column[NodeRow]]:
    """Of `purser get nodes`."""
    return [
        Column("NODE", lambda row: row.node.name),
        Column("STATUS", lambda row: row.status, coloured=True),
        Column("GPUS", lambda row: len(row.node.devices)),
        Column("HEALTHY", lambda row: sum(state.device.healthy for state in row.node.devices)),
        Column("MODEL", lambda row: sorted({state.device.model for state in row.node.devices})),
        Column("SLOTS", lambda row: _used_of_total(row.node, lambda s: s.usage.slots, lambda s: s.device.slots)),
        Column("MEMORY MiB", lambda row: _memory_of(row.node)),
        Column(
            "CORES %",
            lambda row: _used_of_total(row.node, lambda s: s.usage.cores_percent, lambda s: s.device.cores_percent),
        ),
        Column("ENFORCES", lambda row: sorted({str(state.device.enforcement) for state in row.node.devices})),
        Column("DRIVER", lambda row: row.node.inventory.driver_version, wide=True),
        Column("AGENT", lambda row: row.node.inventory.agent_version, wide=True),
    ]


def node_document(row: NodeRow) -> dict[str, Any]:
    """One node with its devices."""
    cordoned = "SchedulingDisabled" in row.status
    devices = [gpu_document(GpuRow(row.node, state, cordoned)) for state in row.node.devices]
    for device in devices:
        del device["pods"]  # `purser get grants` has them
    return {**_to_plain_dict(row.node.inventory), "status": row.status, "devices": devices}


def grant_columns(cluster: ShownCluster) -> list[Column[GrantRow]]:
    """Of `purser get grants`."""
    return [
        Column("NAMESPACE", lambda row: row.grant.namespace),
        Column("POD", lambda row: row.grant.pod),
        Column("CONTAINER", lambda row: row.part.container),
        Column("NODE", lambda row: row.grant.node),
        Column("GPUS", lambda row: [_gpu(cluster, row.grant.node, share) for share in row.part.shares]),
        Column("MEMORY MiB", lambda row: _collapse_equal([share.memory_mib for share in row.part.shares])),
        Column("CORES %", lambda row: _collapse_equal([share.cores_percent for share in row.part.shares])),
        Column("ENFORCED BY", lambda row: str(row.part.enforcement)),
        Column("STATE", lambda row: row.state),
        Column("UUIDS", lambda row: row.part.uuids, wide=True),
    ]


def grant_document(row: GrantRow) -> dict[str, Any]:
    """One container's part of a grant."""
    grant = row.grant
    head = {"namespace": grant.namespace, "pod": grant.pod, "pod_uid": grant.pod_uid, "node": grant.node}
    return {**head, **_to_plain_dict(row.part), "state": row.state}


def _without_mig_devices(node: NodeState) -> Iterator[DeviceState]:
    """GPUs in MIG mode of which pods can have nothing, so that nobody misses them here."""
    parents = {state.device.parent for state in node.devices}
    for gpu in node.inventory.cut:
        if gpu.uuid not in parents:
            yield DeviceState(
                Device(
                    gpu.uuid,
                    -1 if gpu.index is None else gpu.index,
                    gpu.model,
                    gpu.memory_mib,
                    slots=0,
                    mode=DeviceMode.MIG,
                    healthy=False,
                    unhealthy_reason=NO_MIG_DEVICES,
                )
            )


def _state(state: str, part: ContainerGrant) -> str:
    """How far a container is: the init containers of a pod that runs have ended."""
    has_ended = state == GrantState.RUNNING and part.kind is ContainerKind.INIT
    return "ended" if has_ended else str(state)


def _gpu(cluster: ShownCluster, node: str, share: DeviceShare) -> object:
    """Its index, whether it is unhealthy, and the GPU instance where the share is one: ``0 (1g.5gb at 3)``."""
    index = _index(cluster, node, share.uuid)
    return index if share.mig is None else f"{index} ({named(share.mig)})"


def _index(cluster: ShownCluster, node: str, uuid: str) -> object:
    state = cluster.nodes.get(node)
    known = {s.device.uuid: s.device for s in state.devices} if state is not None else {}
    if uuid not in known:
        return f"{uuid} (gone)"
    device = known[uuid]
    return device.index if device.healthy else f"{device.index} (unhealthy)"


def _collapse_equal(values: list[int]) -> object:
    return values[0] if len(set(values)) == 1 else values


def _memory_of(node: NodeState) -> str | None:
    held, total = (state.usage.memory_mib for state in node.devices), (s.device.memory_mib for s in node.devices)
    return _memory(sum(held), sum(total))


def _memory(held: int, total: int) -> str | None:
    """None: it is not known, of GPUs that use the machine's."""
    return f"{held}/{total}" if total else None


def _used_of_total(node: NodeState, used: Callable[[DeviceState], int], total: Callable[[DeviceState], int]) -> str:
    return f"{sum(map(used, node.devices))}/{sum(map(total, node.devices))}"


def _to_plain_dict(value: object) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
