"""Parts of the state document, of fleet and ledger."""

from collections.abc import Mapping

from purser.core.decoding import brief
from purser.core.fleet import DeviceState, NodeState
from purser.core.kubernetes.quantities import QuantityLike
from purser.core.mig.on_demand import named
from purser.core.model import DeviceShare, Grant, GrantState, PartitionedGpu, PodRequest
from purser.core.names import MIG_STATE_LABEL
from purser.core.node.listing import with_listing
from purser.core.node.maintenance import cordoned_by, unfinished_upgrade
from purser.core.node.topology_labels import topology_labels
from purser.core.state.documents import (
    StateAsk,
    StateContainer,
    StateCutGpu,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateNode,
    StateShare,
)

_NONE: Mapping[str, str] = {}
_NO_AMOUNTS: Mapping[str, QuantityLike] = {}
DISPUTED = "the records of which pods hold this GPU differ"
"""For readers who must not learn the pods' names."""


def state_node(
    node: NodeState,
    *,
    cordoned: bool,
    ready: str = "",
    labels: Mapping[str, str] = _NONE,
    annotations: Mapping[str, str] = _NONE,
    allocatable: Mapping[str, QuantityLike] = _NO_AMOUNTS,
    names_pods: bool = True,
) -> StateNode:
    """A node with its GPUs. ``cordoned``: the node as a whole. ``ready``: see `StateNode.ready`. ``allocatable``: its
    Node's amounts (`with_listing`). ``names_pods``: whether the reasons may name pods."""
    inventory = node.inventory
    gpus = tuple(
        _gpu(with_listing(each, allocatable), each.disputed if names_pods or not each.disputed else DISPUTED)
        for each in node.devices
    )
    return StateNode(
        name=node.name,
        cordoned=cordoned,
        driver_version=inventory.driver_version,
        agent_version=inventory.agent_version,
        gpus=gpus,
        topology=topology_labels(labels),
        cordoned_by=cordoned_by(annotations, cordoned=cordoned),
        upgrade=unfinished_upgrade(labels),
        mig_state=brief(labels.get(MIG_STATE_LABEL, "")),
        ready=ready,
        cut_gpus=tuple(map(_cut_gpu, inventory.cut)),
    )


def device_instances(state: DeviceState) -> tuple[str, ...]:
    """GPU instances of a GPU that is cut on demand; in brackets those that no grant made."""
    return (*map(named, state.usage.instances), *(f"({named(each)})" for each in state.device.mig_held))


def state_grant(
    grant: Grant, state: GrantState, node: NodeState | None, created: str = "", started: str = ""
) -> StateGrant:
    """What a pod holds. ``node``: its own; None where there is none of that name. ``created``, ``started``: see
    `StateGrant`."""
    indexes = {} if node is None else {each.device.uuid: each.device.index for each in node.devices}
    containers = tuple(
        StateContainer(
            name=part.container,
            kind=part.kind,
            enforcement=str(part.enforcement),
            shares=tuple(_share(each, indexes) for each in part.shares),
        )
        for part in grant.containers
    )
    return StateGrant(grant.namespace, grant.pod, grant.pod_uid, grant.node, str(state), containers, created, started)


def state_ask(request: PodRequest) -> StateAsk | None:
    """What a pod asks for of each GPU, as `StateWaiting` has it."""
    asked = [each.devices for each in request.containers]
    resources, whole = {each.resource for each in asked}, {each.is_whole for each in asked}
    if len(resources) != 1 or len(whole) != 1 or any(each.slices or each.mig_profiles for each in asked):
        return None
    (resource,), (is_whole,) = resources, whole
    if is_whole:
        return StateAsk(resource, True)
    memory_mib = max(each.memory_mib or 0 for each in asked)
    memory_percent = max(each.memory_percent or 0 for each in asked)
    return StateAsk(resource, False, memory_mib, memory_percent) if bool(memory_mib) != bool(memory_percent) else None


def _gpu(state: DeviceState, dispute: str) -> StateGpu:
    device, usage = state.device, state.usage
    return StateGpu(
        uuid=device.uuid,
        index=device.index,
        model=device.model,
        mode=str(device.mode),
        resource=device.resource,
        parent=device.parent,
        health=_health(state),
        reason=device.unhealthy_reason or dispute,
        cordoned=state.cordoned,
        enforcement=str(device.enforcement),
        slots=device.slots,
        slots_held=usage.slots,
        memory_mib=device.memory_mib,
        memory_held_mib=usage.memory_mib,
        cores_percent=device.cores_percent,
        cores_held_percent=usage.cores_percent,
        pods=usage.pods,
        pci_bus_id=device.pci_bus_id,
        numa_nodes=device.numa_nodes,
        instances=device_instances(state),
        degraded_reason=device.degraded_reason,
    )


def _cut_gpu(gpu: PartitionedGpu) -> StateCutGpu:
    return StateCutGpu(gpu.uuid, -1 if gpu.index is None else gpu.index, gpu.model, gpu.memory_mib)


def _health(state: DeviceState) -> StateGpuHealth:
    if not state.device.healthy:
        return StateGpuHealth.UNHEALTHY
    if state.cordoned:
        return StateGpuHealth.CORDONED
    return StateGpuHealth.DISPUTED if state.disputed else StateGpuHealth.HEALTHY


def _share(share: DeviceShare, indexes: Mapping[str, int]) -> StateShare:
    mig = "" if share.mig is None else named(share.mig)
    return StateShare(share.uuid, indexes.get(share.uuid, -1), share.memory_mib, share.cores_percent, mig)
