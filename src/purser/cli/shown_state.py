"""What `purser get --scheduler` shows: the state document of the scheduler's read API, in the terms of `purser get`.

The document does not have all that nodes report of their GPUs. What it does not have is left out of ``-o json|yaml``.
"""

from enum import StrEnum
from typing import Any, TypeVar, cast

from purser.adapters.quotas import CORES, MEMORY
from purser.cli.get_tables import GpuRow, NodeRow, gpu_document, node_document
from purser.cli.shown_cluster import ShownCluster, status_words
from purser.core.fleet import DeviceState, NodeState
from purser.core.grant.quota import QuotaLimits, strictest_limits
from purser.core.ledger import Usage
from purser.core.model import (
    ContainerGrant,
    Device,
    DeviceMode,
    DeviceShare,
    Enforcement,
    Grant,
    MigPlacement,
    NodeInventory,
    PartitionedGpu,
)
from purser.core.names import GPU_RESOURCE
from purser.core.state import (
    ClusterState,
    StateContainer,
    StateCutGpu,
    StateGpu,
    StateGpuHealth,
    StateGrant,
    StateNode,
    StateShare,
)

Word = TypeVar("Word", bound=StrEnum)

_NVIDIA = "nvidia.com/"
_USAGE_NOT_IN_STATE = ("exclusive", "alike", "core_numbers")
_MAX_DIGITS = 9
"""Of a memory slice: `int` refuses very long ones."""


def shown_of_state(state: ClusterState) -> ShownCluster:
    """What a scheduler answered."""
    families = {gpu.uuid: _family(gpu) for node in state.nodes for gpu in node.gpus}
    ordered = sorted(state.grants, key=lambda each: (each.namespace, each.pod, each.uid))
    return ShownCluster(
        nodes={node.name: _node(node) for node in sorted(state.nodes, key=lambda each: each.name)},
        grants=tuple(_grant(each, families) for each in ordered),
        states={each.uid: each.state for each in ordered},
        status={node.name: status_words(node.ready, is_cordoned=node.cordoned) for node in state.nodes},
    )


def is_partial(state: ClusterState) -> bool:
    """Whether the state of a namespace's reader, as far as it shows, has those GPUs alone that the namespace's
    pods hold, and those in MIG mode of whose devices they hold some."""
    held = {share.gpu for grant in state.grants for part in grant.containers for share in part.shares}
    parents = {gpu.parent for node in state.nodes for gpu in node.gpus if gpu.uuid in held}
    return bool(state.nodes) and all(
        all(gpu.uuid in held for gpu in node.gpus) and all(gpu.uuid in parents for gpu in node.cut_gpus)
        for node in state.nodes
    )


def state_gpu_document(row: GpuRow) -> dict[str, Any]:
    """One GPU."""
    return _without_missing_usage(gpu_document(row))


def state_node_document(row: NodeRow) -> dict[str, Any]:
    """One node with its devices."""
    document = node_document(row)
    return {**document, "devices": [*map(_without_missing_usage, document["devices"])]}


def limits_of_state(state: ClusterState) -> dict[str, QuotaLimits]:
    """By namespace, what quotas allow of the memory and compute of NVIDIA's GPUs."""
    found: dict[str, list[QuotaLimits]] = {}
    for quota in state.quotas:
        if quota.resource == MEMORY:
            found.setdefault(quota.namespace, []).append(QuotaLimits(memory_mib=quota.limit))
        elif quota.resource == CORES:
            found.setdefault(quota.namespace, []).append(QuotaLimits(cores_percent=quota.limit))
    return {namespace: strictest_limits(limits) for namespace, limits in found.items()}


def _without_missing_usage(gpu: dict[str, Any]) -> dict[str, Any]:
    held = {name: value for name, value in gpu["held"].items() if name not in _USAGE_NOT_IN_STATE}
    return {**gpu, "held": held}


def _node(node: StateNode) -> NodeState:
    states = tuple(map(_device_state, node.gpus))
    devices = tuple(each.device for each in states)
    has_library = bool(devices) and all(each.enforcement is Enforcement.HAMI_CORE for each in devices)
    inventory = NodeInventory(
        node.name,
        devices,
        cut=tuple(map(_cut, node.cut_gpus)),
        enforcement=Enforcement.HAMI_CORE if has_library else Enforcement.NONE,
        driver_version=node.driver_version,
        agent_version=node.agent_version,
        cordoned=tuple(gpu.uuid for gpu in node.gpus if gpu.cordoned),
    )
    return NodeState(node.name, inventory, states, hardware=())


def _device_state(gpu: StateGpu) -> DeviceState:
    is_healthy = gpu.health is not StateGpuHealth.UNHEALTHY
    made = tuple(_placement(each) for each in gpu.instances if not each.startswith("("))
    others = tuple(_placement(each.strip("()")) for each in gpu.instances if each.startswith("("))
    device = Device(
        gpu.uuid,
        gpu.index,
        gpu.model,
        gpu.memory_mib,
        gpu.cores_percent,
        gpu.slots,
        gpu.numa_nodes,
        gpu.pci_bus_id,
        mode=_word(DeviceMode, gpu.mode),
        healthy=is_healthy,
        unhealthy_reason="" if is_healthy else gpu.reason,
        degraded_reason=gpu.degraded_reason,
        enforcement=_word(Enforcement, gpu.enforcement),
        resource=GPU_RESOURCE if gpu.resource == GPU_RESOURCE else gpu.resource,  # documents leave out the default
        parent=gpu.parent,
        mig_held=others,
    )
    usage = Usage(gpu.slots_held, gpu.memory_held_mib, gpu.cores_held_percent, gpu.pods, instances=made)
    return DeviceState(device, usage, gpu.cordoned, gpu.reason if is_healthy else "")


def _cut(gpu: StateCutGpu) -> PartitionedGpu:
    return PartitionedGpu(gpu.uuid, gpu.model, gpu.memory_mib, index=None if gpu.index < 0 else gpu.index)


def _grant(grant: StateGrant, families: dict[str, str]) -> Grant:
    parts = tuple(_container(each, families) for each in grant.containers)
    return Grant(grant.uid, grant.namespace, grant.pod, grant.node, parts)


def _container(part: StateContainer, families: dict[str, str]) -> ContainerGrant:
    shares = tuple(_share(each, families.get(each.gpu, "")) for each in part.shares)
    return ContainerGrant(part.name, part.kind, shares, _word(Enforcement, part.enforcement))


def _share(share: StateShare, family: str) -> DeviceShare:
    mig = _placement(share.mig) if share.mig else None
    return DeviceShare(share.gpu, share.memory_mib, share.cores_percent, mig, family)


def _family(gpu: StateGpu) -> str:
    """Other vendors' devices are listed under the resource of their family."""
    return "" if gpu.resource.startswith(_NVIDIA) else gpu.resource


def _placement(text: str) -> MigPlacement:
    """Of ``1g.5gb at 3``."""
    profile, _, start = text.rpartition(" at ")
    return MigPlacement(profile or text, int(start) if start.isdecimal() and len(start) <= _MAX_DIGITS else 0)


def _word(kind: type[Word], text: str) -> Word:
    """The word; that of a newer scheduler, which this version does not know, is shown as it is."""
    try:
        return kind(text)
    except ValueError:
        return cast("Word", text)
