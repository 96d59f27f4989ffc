"""Answers kubelet's calls for one pool: what `purser.agent.allocation.arbiter` is for GPUs.

A device is one container's, and kubelet's id is the device: what kubelet has chosen holds, if the device is in the
pool. Only where a pod's grant says near which GPUs its devices are to be, it matters whose call it is.
"""

from collections.abc import Callable, Collection

import structlog

from purser.agent.kubelet.calls import AllocateCall, ContainerAllocation, Mount, PreferredAllocationCall
from purser.agent.kubelet.refusals import AllocationRefused, RefusalReason
from purser.agent.sriov.files import DeviceInfoFiles
from purser.agent.sriov.neighbours import GpuNeighbours, PoolTurn, place_id
from purser.core.sriov.answers import answer, cdi_annotation, device_files
from purser.core.sriov.pools import PoolMember, SriovPool
from purser.core.sriov.preference import preferred_devices
from purser.core.wording import some

log = structlog.get_logger("purser.agent")


class SriovArbiter:
    """Of one resource."""

    def __init__(
        self,
        resource: str,
        find: Callable[[str], SriovPool | None],
        held: Callable[[], Collection[str]],
        vhost_files: Callable[[], tuple[str, ...]],
        files: DeviceInfoFiles,
        on_answered: Callable[[str, tuple[str, ...], bool], None],
        neighbours: GpuNeighbours | None = None,
        *,
        uses_cdi: bool,
    ) -> None:
        """``find``: the pool of a resource as it is now. ``held``: the ids that containers hold. ``vhost_files``: see
        `NodeDevices.vhost_net`. ``on_answered`` is given the resource and the ids of each container that gets its
        devices, and whether a grant says so. ``neighbours``: for pods that are granted GPUs as well."""
        self._resource = resource
        self._find = find
        self._held = held
        self._vhost_files = vhost_files
        self._files = files
        self._on_answered = on_answered
        self._neighbours = neighbours
        self._uses_cdi = uses_cdi

    async def prefer(self, call: PreferredAllocationCall) -> tuple[str, ...]:
        """See `preferred_devices`."""
        turn = await self._turn(call.size)
        pool = self._find(self._resource)
        held = self._held()
        if pool is None:
            return tuple(preferred_devices(call.size, call.available, call.must_include, {}, held=held))
        devices = {id_: each.device for id_, each in pool.by_id().items()}
        places = {} if turn is None else turn.places
        asked = (call.size, call.available, call.must_include)
        return tuple(preferred_devices(*asked, devices, places, lambda device: place_id(pool, device), held=held))

    async def allocate(self, call: AllocateCall) -> ContainerAllocation:
        """Raises `AllocationRefused`."""
        turn = await self._turn(len(call.ids))
        pool = self._find(self._resource)
        members = [] if pool is None else self._chosen(pool, call.ids)
        if pool is None:
            raise _build_gone_device_refusal(self._resource, call.ids)
        if turn is not None and self._neighbours is not None:
            self._neighbours.check(turn, pool, members)
        vhost = self._vhost_files()
        found = answer(pool, members, vhost)
        try:
            self._files.write(pool, members)
        except OSError as error:
            message = f"cannot write the device information for {self._resource}: {error}"
            raise AllocationRefused(RefusalReason.SRIOV_FILES, message) from error
        self._on_answered(self._resource, call.ids, turn is not None)
        log.info("Allocated devices", pod="" if turn is None else turn.key, resource=self._resource, ids=call.ids)
        if self._uses_cdi:
            named = [each.device.id for each in members if device_files(each, vhost)]
            return ContainerAllocation(found.variables, annotations=cdi_annotation(pool, named))
        files = (Mount(each.container_path, each.host_path, read_only=False) for each in found.device_files)
        return ContainerAllocation(found.variables, device_nodes=tuple(files))

    async def check_start(self, ids: tuple[str, ...]) -> None:
        """Nothing: kubelet does not ask."""

    async def _turn(self, size: int) -> PoolTurn | None:
        return None if self._neighbours is None else await self._neighbours.turn(self._resource, size)

    def _chosen(self, pool: SriovPool, ids: tuple[str, ...]) -> list[PoolMember]:
        members = pool.by_id()
        if unknown := [each for each in ids if each not in members]:
            raise _build_gone_device_refusal(self._resource, tuple(unknown))
        return [members[each] for each in ids]


def _build_gone_device_refusal(resource: str, ids: tuple[str, ...]) -> AllocationRefused:
    message = f"pool {resource} no longer contains {some(ids)}, which kubelet chose: recreate the pod"
    return AllocationRefused(RefusalReason.SRIOV_GONE, message)
