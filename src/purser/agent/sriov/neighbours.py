"""Network devices and GPUs of one node under the same PCIe switches: what the scheduler learns of them, and which
devices of a pool a container had better get by its pod's grant.

kubelet asks for GPUs and for each pool by themselves, in any order. The grant says for both where they come from, so
that no call depends on another one, nor on what an agent before this one answered.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from purser.agent.allocation.pods import NodePods
from purser.agent.host.latest import Latest
from purser.agent.host.sysfs import pci_address, pcie_switches
from purser.agent.kubelet.pod_resources import KubeletBooks, KubeletError
from purser.agent.kubelet.refusals import AllocationRefused, RefusalReason
from purser.agent.kubeletapi.podresources.v1 import api_pb2
from purser.core.decoding import brief
from purser.core.model import ContainerGrant, Grant, NodeInventory, NodePool, PcieSwitches, PoolPlace
from purser.core.sriov.devices import SriovDevice
from purser.core.sriov.pairs import FreePlace, container_pairs, pairs_sentence
from purser.core.sriov.pcie import NodePcie
from purser.core.sriov.pools import PoolMember, SriovPool
from purser.core.wording import some
from purser.kube.errors import KubeError
from purser.kube.objects import Pod

log = structlog.get_logger("purser.agent")

_TURN_TIMEOUT_S = 3.0
"""For kubelet's list. Without it a container gets what it would get without a grant: kubelet waits for the answer."""

_MAX_POOLS, _MAX_PLACES = 16, 32
"""That an inventory has room for."""


class PoolTurn(msgspec.Struct, frozen=True):
    """A container that kubelet asks a pool's devices for."""

    key: str
    grant: Grant
    part: ContainerGrant
    places: Mapping[str, int]
    """How many devices of which place it is to get."""


class GpuNeighbours:
    """Of one node."""

    def __init__(
        self,
        kubelet: KubeletBooks,
        pods: NodePods,
        inventory: Latest[NodeInventory | None],
        on_mismatched_nics: Callable[[Pod, str], None],
    ) -> None:
        """``on_mismatched_nics`` is told of a pod whose network devices are not where its grant says."""
        self._kubelet = kubelet
        self._pods = pods
        self._inventory = inventory
        self._on_mismatched_nics = on_mismatched_nics
        self.pcie: Latest[NodePcie | None] = Latest(None)
        """None: pools have not been looked at yet."""

    def look(self, sys: Path, pools: Iterable[SriovPool], listed: Sequence[api_pb2.PodResources]) -> str:
        """Take in what there is. ``sys``: the host's sysfs. Blocks for a link of sysfs per GPU.

        Returns what of it the scheduler does not learn, in a sentence; empty: it learns all.
        """
        inventory = self._inventory.value
        gpus = {each.uuid: each.pci_bus_id for each in inventory.devices} if inventory else {}
        switches = {uuid: found for uuid, bus_id in gpus.items() if (found := _switches(sys, bus_id))}
        published, left_out = truncate_to_limits(build_node_pools(pools, listed, self._pods.view().grants))
        self.pcie.set(NodePcie(switches, published))
        return left_out if gpus else ""

    async def turn(self, resource: str, size: int) -> PoolTurn | None:
        """Whose call it is; None: of no pod whose grant says anything of the pool, or that is not clear."""
        try:
            async with asyncio.timeout(_TURN_TIMEOUT_S):
                listed = await self._kubelet.resources()
        except (KubeletError, TimeoutError) as error:
            log.warning("Cannot list SR-IOV allocations from kubelet", resource=resource, error=brief(repr(error)))
            return None
        turns = tuple(_turns(listed, await self._grants(listed), resource, size))
        ways = {(each.grant.pairs_required, each.part.uuids, *sorted(each.places.items())) for each in turns}
        if len(ways) > 1:
            keys = sorted({each.key for each in turns})
            log.warning(
                "Cannot determine which of these pods gets SR-IOV devices; no grant is applied",
                resource=resource,
                pods=keys,
            )
        return turns[0] if len(ways) == 1 else None

    async def _grants(self, listed: Sequence[api_pb2.PodResources]) -> Mapping[str, Grant]:
        """Of pods that the informer has not seen yet the API server is asked."""
        keys = [f"{pod.namespace}/{pod.name}" for pod in listed]
        unknown = [key for key in keys if self._pods.get(key) is None]
        fetched: Mapping[str, Pod | None] = {}
        if unknown:
            try:
                fetched = await self._pods.fetch(unknown)
            except KubeError as error:
                log.warning("The API server did not return the pods that request SR-IOV devices", error=str(error))
        return self._pods.view(fetched).grants

    def check(self, turn: PoolTurn, pool: SriovPool, members: Sequence[PoolMember]) -> None:
        """What the container gets of a pool. Raises `AllocationRefused` where its pod requires pairs, and it is to get
        fewer than it could have."""
        pcie = self.pcie.value or NodePcie()
        planned = _planned_places(turn, pcie, without="")
        got = [FreePlace(pool.resource, each.device.id, each.device.switches, 1) for each in members]
        actual = container_pairs(turn.part, [*_planned_places(turn, pcie, without=pool.resource), *got], pcie.gpus)
        wanted = container_pairs(turn.part, planned, pcie.gpus).pairs
        if actual.pairs >= min(wanted, actual.most):
            return
        message = (
            f"container {turn.part.container}: {pairs_sentence([actual])}, but the grant assumes {wanted}: "
            f"kubelet chose {', '.join(each.device.id for each in members)} from {pool.resource}"
        )
        if turn.grant.pairs_required:
            raise AllocationRefused(RefusalReason.NIC_APART, f"{message}. Recreate the pod", (turn.key,))
        log.warning("A pod's network devices are not near its GPUs", pod=turn.key, message=message)
        if (pod := self._pods.get(turn.key)) is not None:
            self._on_mismatched_nics(pod, message)


def build_node_pools(
    pools: Iterable[SriovPool], listed: Sequence[api_pb2.PodResources], grants: Mapping[str, Grant]
) -> tuple[NodePool, ...]:
    """The pools that have devices, with how many of them there are for grants.

    A device that a container holds by its grant counts where the grant says that it is, be it elsewhere: for the
    scheduler takes that off. So the number changes only with what no grant says. ``grants``: of live pods, by key.
    """
    held = {
        (devices.resource_name, id_)
        for pod in listed
        for container in pod.containers
        for devices in container.devices
        for id_ in devices.device_ids
    }
    granted = _granted_devices(listed, grants)
    found = []
    for pool in pools:
        places: dict[str, PoolPlace] = {}
        for each in pool.members:
            is_free = not each.trouble and (pool.resource, each.device.id) not in held
            place = _build_place(pool, each.device, int(is_free))
            places[place.id] = _merge_places(places[place.id], place) if place.id in places else place
        named = sorted(places.values(), key=repr)
        counts = tuple(
            msgspec.structs.replace(each, count=each.count + granted[pool.resource, each.id]) for each in named
        )
        if counts:
            found.append(NodePool(pool.resource, counts))
    return tuple(found)


def truncate_to_limits(pools: Sequence[NodePool]) -> tuple[tuple[NodePool, ...], str]:
    """The pools that an inventory has room for, and of what it has none, in a sentence."""
    kept = tuple(
        msgspec.structs.replace(pool, places=pool.places[:_MAX_PLACES]) if len(pool.places) > _MAX_PLACES else pool
        for pool in pools[:_MAX_POOLS]
    )
    surplus = [pool.resource for pool in pools[_MAX_POOLS:]]
    oversized = [pool.resource for pool in pools[:_MAX_POOLS] if len(pool.places) > _MAX_PLACES]
    parts = []
    if surplus:
        parts.append(
            f"{some(surplus, named=4)}, because the node has {len(pools)} pools with devices, but only "
            f"{_MAX_POOLS} can be published"
        )
    if oversized:
        parts.append(
            f"parts of {some(oversized, named=4)}, because they span more than {_MAX_PLACES} PCIe switches or NUMA "
            "nodes"
        )
    return kept, f"The scheduler cannot pair GPUs with devices from {'; or from '.join(parts)}" if parts else ""


def place_id(pool: SriovPool, device: SriovDevice) -> str:
    """`PoolPlace.id` of a device."""
    return _build_place(pool, device, 1).id


def _build_place(pool: SriovPool, device: SriovDevice, count: int) -> PoolPlace:
    return PoolPlace(device.switches, count, None if pool.config.exclude_topology else device.numa_node)


def _merge_places(place: PoolPlace, other: PoolPlace) -> PoolPlace:
    """One place, whose NUMA node is not known where its devices say different ones, as while one of them is removed:
    an inventory that named it twice would be ignored, with the node's GPUs."""
    numa_node = place.numa_node if place.numa_node == other.numa_node else None
    return PoolPlace(place.switches, place.count + other.count, numa_node)


def _granted_devices(listed: Sequence[api_pb2.PodResources], grants: Mapping[str, Grant]) -> "Counter[tuple[str, str]]":
    """By pool and place, what the grants of containers say that hold devices of the pool."""
    found = Counter[tuple[str, str]]()
    for pod in listed:
        grant = grants.get(f"{pod.namespace}/{pod.name}")
        if grant is not None and grant.pools:
            holding = {(each.name, devices.resource_name) for each in pod.containers for devices in each.devices}
            for share in grant.pools:
                if (share.container, share.resource) in holding:
                    found[share.resource, share.place] += share.count
    return found


def _turns(
    listed: Sequence[api_pb2.PodResources], grants: Mapping[str, Grant], resource: str, size: int
) -> Iterator[PoolTurn]:
    for pod in listed:
        key = f"{pod.namespace}/{pod.name}"
        if (grant := grants.get(key)) is None:
            continue
        holds = {each.name: {devices.resource_name for devices in each.devices} for each in pod.containers}
        any_holds = any(resource in names for names in holds.values())
        for part in grant.containers:
            places = {
                share.place: share.count
                for share in grant.pools
                if (share.container, share.resource) == (part.container, resource)
            }
            # kubelet does not list init containers: these are served before the others have anything.
            waits = resource not in holds[part.container] if part.container in holds else not any_holds
            if waits and 0 < sum(places.values()) <= size:
                yield PoolTurn(key, grant, part, places)
                break


def _planned_places(turn: PoolTurn, pcie: NodePcie, without: str) -> list[FreePlace]:
    switches = {(pool.resource, place.id): place.switches for pool in pcie.pools for place in pool.places}
    return [
        FreePlace(each.resource, each.place, switches.get((each.resource, each.place), ()), each.count)
        for each in turn.grant.pools
        if each.container == turn.part.container and each.resource != without
    ]


def _switches(sys: Path, bus_id: str) -> PcieSwitches:
    try:
        return pcie_switches(sys / "bus/pci/devices" / pci_address(bus_id))
    except ValueError:
        return ()
