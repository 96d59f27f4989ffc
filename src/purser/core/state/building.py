"""Parts of the state document, of fleet and ledger."""

from collections.abc import Mapping

from purser.core.decoding import brief
from purser.core.fleet import DeviceState, NodeState
from purser.core.kubernetes.quantities import QuantityLike
from purser.core.mig.on_demand import named
from purser.core.model import DeviceShare, Grant, GrantState
from purser.core.names import MIG_STATE_LABEL, NOT_LISTED
from purser.core.node.maintenance import cordoned_by, unfinished_upgrade
from purser.core.node.topology_labels import topology_labels
from purser.core.state.documents import StateContainer, StateGpu, StateGpuHealth, StateGrant, StateNode, StateShare

_NONE: Mapping[str, str] = {}
_NO_AMOUNTS: Mapping[str, QuantityLike] = {}
DISPUTED = "the records of which pods hold this GPU differ"
"""For readers who must not learn the pods' names."""


def state_node(
    node: NodeState,
    *,
    cordoned: bool,
    labels: Mapping[str, str] = _NONE,
    annotations: Mapping[str, str] = _NONE,
    allocatable: Mapping[str, QuantityLike] = _NO_AMOUNTS,
    names_pods: bool = True,
) -> StateNode:
    """A node with its GPUs. ``cordoned``: the node as a whole. ``allocatable``: its Node's amounts; a device of
    which kubelet lists none takes no pods (one that is cut on demand has several names, and is let be).
    ``names_pods``: whether the reasons may name pods."""
    inventory = node.inventory
    gpus = tuple(
        _gpu(
            each,
            dispute=each.disputed if names_pods or not each.disputed else DISPUTED,
            is_listed=bool(each.device.mig_kind) or not _is_zero(allocatable, each.device.resource),
        )
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
    )


def state_grant(grant: Grant, state: GrantState, node: NodeState | None) -> StateGrant:
    """What a pod holds. ``node``: its own; None where there is none of that name."""
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
    return StateGrant(grant.namespace, grant.pod, grant.pod_uid, grant.node, str(state), containers)


def _is_zero(allocatable: Mapping[str, QuantityLike], resource: str) -> bool:
    """Whether kubelet lists none of a resource that it knows: its device plugin is gone, so no pod gets any (kubelet
    keeps the name, with 0, when a plugin goes away: `setters.MachineInfo`, 1.20 to 1.37)."""
    return str(allocatable.get(resource, "")) == "0"


def _gpu(state: DeviceState, *, dispute: str, is_listed: bool) -> StateGpu:
    device, usage = state.device, state.usage
    health, reason = _health(state), dispute
    if health is StateGpuHealth.HEALTHY and not is_listed:
        health, reason = StateGpuHealth.UNHEALTHY, NOT_LISTED
    return StateGpu(
        uuid=device.uuid,
        index=device.index,
        model=device.model,
        mode=str(device.mode),
        resource=device.resource,
        parent=device.parent,
        health=health,
        reason=device.unhealthy_reason or reason,
        cordoned=state.cordoned,
        enforcement=str(device.enforcement),
        slots=device.slots,
        slots_held=usage.slots,
        memory_mib=device.memory_mib,
        memory_held_mib=usage.memory_mib,
        cores_percent=device.cores_percent,
        cores_held_percent=usage.cores_percent,
        pods=usage.pods,
    )


def _health(state: DeviceState) -> StateGpuHealth:
    if not state.device.healthy:
        return StateGpuHealth.UNHEALTHY
    if state.cordoned:
        return StateGpuHealth.CORDONED
    return StateGpuHealth.DISPUTED if state.disputed else StateGpuHealth.HEALTHY


def _share(share: DeviceShare, indexes: Mapping[str, int]) -> StateShare:
    mig = "" if share.mig is None else named(share.mig)
    return StateShare(share.uuid, indexes.get(share.uuid, -1), share.memory_mib, share.cores_percent, mig)
