"""Answers kubelet's calls for one pool: what `purser.agent.arbiter` is for GPUs.

A device is one container's, and kubelet's id is the device. So there is nothing to attribute or to grant here: what
kubelet has chosen holds, if the device is in the pool.
"""

from collections.abc import Callable

from purser.agent.admission import AllocateCall, PreferredAllocationCall
from purser.agent.allocation import ContainerAllocation, Mount
from purser.agent.refusals import AllocationRefused, RefusalReason
from purser.agent.sriov.files import DeviceInfoFiles
from purser.core.sriov.answers import answer, cdi_annotation, device_files
from purser.core.sriov.pools import PoolMember, SriovPool
from purser.core.sriov.preference import preferred_devices
from purser.core.wording import some


class SriovArbiter:
    """Of one resource."""

    def __init__(
        self,
        resource: str,
        find: Callable[[str], SriovPool | None],
        vhost_files: Callable[[], tuple[str, ...]],
        files: DeviceInfoFiles,
        on_answered: Callable[[str, tuple[str, ...]], None],
        *,
        uses_cdi: bool,
    ) -> None:
        """``find``: the pool of a resource as it is now. ``vhost_files``: see `NodeDevices.vhost_net`. ``on_answered``
        is given the resource and the ids of each container that gets its devices."""
        self._resource = resource
        self._find = find
        self._vhost_files = vhost_files
        self._files = files
        self._on_answered = on_answered
        self._uses_cdi = uses_cdi

    async def prefer(self, call: PreferredAllocationCall) -> tuple[str, ...]:
        """See `preferred_devices`."""
        members = self._members()
        devices = {id_: each.device for id_, each in members.items()}
        return tuple(preferred_devices(call.size, call.available, call.must_include, devices))

    async def allocate(self, call: AllocateCall) -> ContainerAllocation:
        """Raises `AllocationRefused`."""
        pool = self._find(self._resource)
        members = [] if pool is None else self._chosen(pool, call.ids)
        if pool is None:
            raise _gone(self._resource, call.ids)
        vhost = self._vhost_files()
        found = answer(pool, members, vhost)
        try:
            self._files.write(pool, members)
        except OSError as error:
            message = f"the device information of {self._resource} cannot be written: {error}"
            raise AllocationRefused(RefusalReason.SRIOV_FILES, message) from error
        self._on_answered(self._resource, call.ids)
        if self._uses_cdi:
            named = [each.device.id for each in members if device_files(each, vhost)]
            return ContainerAllocation(found.variables, annotations=cdi_annotation(pool, named))
        files = (Mount(each.container_path, each.host_path, read_only=False) for each in found.device_files)
        return ContainerAllocation(found.variables, device_nodes=tuple(files))

    async def check_start(self, ids: tuple[str, ...]) -> None:
        """Nothing: kubelet does not ask."""

    def _members(self) -> dict[str, PoolMember]:
        pool = self._find(self._resource)
        return {} if pool is None else pool.by_id()

    def _chosen(self, pool: SriovPool, ids: tuple[str, ...]) -> list[PoolMember]:
        members = pool.by_id()
        if unknown := [each for each in ids if each not in members]:
            raise _gone(self._resource, tuple(unknown))
        return [members[each] for each in ids]


def _gone(resource: str, ids: tuple[str, ...]) -> AllocationRefused:
    message = f"{some(ids)} left the pool {resource} after kubelet chose it: create the pod again"
    return AllocationRefused(RefusalReason.SRIOV_GONE, message)
