"""The document on one node, of its inventory and of what its kubelet reported."""

from collections.abc import Collection, Iterator, Sequence

from purser.core.fleet import NodeState
from purser.core.fleet.kubelet_snapshot import ReportedKubelet
from purser.core.interconnect import connection, numa_level
from purser.core.kubelet.state import PluginResource
from purser.core.model import Device, PcieLevel, PoolPlace
from purser.core.sriov.pairs import pairing_depth
from purser.core.state.node_documents import (
    MAX_LINKED_GPUS,
    NodeDetails,
    StateKubelet,
    StateKubeletResource,
    StateLink,
    StateNodeGpu,
    StatePoolPlace,
)

AGENT_SOURCE, TOPOLOGY_SOURCE = "agent", "NodeResourceTopology"


def node_details(node: NodeState, report: ReportedKubelet | None) -> NodeDetails:
    """All of it. ``report``: what `Fleet.kubelet_report` has of the node."""
    gpus = _gpus(node)
    return NodeDetails(
        name=node.name,
        gpus=_node_gpus(gpus),
        pools=tuple(_pools(node, gpus)),
        kubelet=None if report is None else _kubelet(report),
    )


def details_of_gpus(node: NodeState, uuids: Collection[str]) -> NodeDetails:
    """What somebody may know who may know of these GPUs of the node alone."""
    gpus = [each for each in _gpus(node) if each.uuid in uuids]
    return NodeDetails(node.name, _node_gpus(gpus), pools=(), kubelet=None)


def _gpus(node: NodeState) -> list[Device]:
    return [each.device for each in node.devices if not each.device.parent]


def _node_gpus(gpus: Sequence[Device]) -> tuple[StateNodeGpu, ...]:
    linked = gpus[:MAX_LINKED_GPUS]
    return tuple(_gpu(each, linked if number < MAX_LINKED_GPUS else ()) for number, each in enumerate(gpus))


def _gpu(gpu: Device, linked: Collection[Device]) -> StateNodeGpu:
    links = tuple(_link(gpu, other) for other in linked if other is not gpu)
    return StateNodeGpu(gpu.uuid, gpu.index, gpu.pci_bus_id, gpu.numa_nodes, links)


def _link(one: Device, other: Device) -> StateLink:
    found = connection(one, other)
    return StateLink(other.uuid, found.level, found.nvlinks, found.nvlinks_differ)


def _pools(node: NodeState, gpus: Collection[Device]) -> Iterator[StatePoolPlace]:
    for pool in node.inventory.pools:
        for place in pool.places:
            held = node.pools_taken.get((pool.resource, place.id), 0)
            levels = tuple(_pool_level(each, place) for each in gpus)
            yield StatePoolPlace(pool.resource, place.id, place.numa_node, place.count, held, levels)


def _pool_level(gpu: Device, place: PoolPlace) -> PcieLevel | None:
    """Those that scheduling pairs (`purser.core.sriov.pairs`) share at least one switch."""
    if pairing_depth(gpu.pcie, place.switches):
        return PcieLevel.SINGLE_SWITCH if gpu.pcie == place.switches else PcieLevel.MULTI_SWITCH
    return numa_level(gpu.numa_nodes, () if place.numa_node is None else (place.numa_node,))


def _kubelet(report: ReportedKubelet) -> StateKubelet:
    config, devices = report.node.config, report.state.devices
    return StateKubelet(
        version=config.version,
        source=AGENT_SOURCE if report.counted is None else TOPOLOGY_SOURCE,
        topology_policy=config.topology_policy,
        topology_scope=config.topology_scope,
        cpu_policy=config.cpu_policy,
        memory_policy=config.memory_policy,
        resources=tuple(
            _resource(name, each, devices.allocated.get(name, frozenset()))
            for name, each in sorted(devices.resources.items())
        ),
    )


def _resource(name: str, resource: PluginResource, held: Collection[str]) -> StateKubeletResource:
    numa_nodes = {number for each in resource.devices.values() for number in each.numa_nodes or ()}
    return StateKubeletResource(
        name, len(resource.devices), len(resource.healthy), len(held), tuple(sorted(numa_nodes))
    )
