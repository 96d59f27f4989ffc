"""Gives containers the instances of their grants: has them made, with all that a container needs to use them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import structlog

from purser.agent.host.threads import run_in_thread
from purser.agent.instances.devices import granted_devices, mig_device, part_with_devices
from purser.agent.instances.keeping import InstanceError, InstanceManager, placements_of
from purser.core.model import ContainerGrant, Device, Grant

log = structlog.get_logger("purser.agent")

LISTED_TIMEOUT_S = 5.0
"""How long a container waits until the CDI specification has its devices; the runtime tries again, too."""


class InstanceAllocator:
    """Of one node."""

    def __init__(
        self,
        keeper: InstanceManager,
        make_files: Callable[[Collection[str]], None],
        listed: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        """``make_files`` makes what is missing in /dev for some MIG devices: it blocks, and raises OSError. ``listed``
        returns once the CDI specification has them, where there is one."""
        self._keeper = keeper
        self._make_files = make_files
        self._listed = listed

    async def give(self, grant: Grant, part: ContainerGrant, *, again: bool = False) -> None:
        """Have the instances of a container of a pod there. ``again``: it has been given them before, and they were
        there then. Raises `InstanceError`."""
        wanted = placements_of((part,))
        if again and (self._all_exist(part) or not all(map(self._keeper.follows, wanted))):
            return  # of GPUs that are not cut on demand any more nothing is known here
        if not wanted:
            return
        for uuid, placements in wanted.items():
            await self._keeper.ensure(uuid, placements, None if again else (grant.pod_uid, part.container))
        if not self._all_exist(part):
            raise InstanceError("the GPU instances were created, but the driver does not list their MIG devices")
        devices = self.part_with_instances(part).uuids
        try:
            await run_in_thread(lambda: self._make_files(devices), "purser-mig-files")
        except OSError as error:
            what = "MIG device" if len(devices) == 1 else "MIG devices"
            raise InstanceError(f"cannot create the device files of {what} {', '.join(devices)}: {error}") from error
        try:
            async with asyncio.timeout(LISTED_TIMEOUT_S):
                await self._listed(devices)
        except TimeoutError:
            log.warning("The CDI specification does not yet list a container's MIG devices", devices=devices)

    def released(self) -> None:
        """A pod has ended."""
        self._keeper.grants_changed()

    def part_with_instances(self, part: ContainerGrant) -> ContainerGrant:
        """What a container was granted, with the MIG devices that are there in the place of their GPUs."""
        return part_with_devices(part, self._keeper.devices)

    def of_grant(self, grant: Grant) -> Grant:
        """The same of all containers of a pod."""
        return granted_devices(grant, self._keeper.devices)

    def with_devices(self, devices: Mapping[str, Device]) -> dict[str, Device]:
        """A node's devices by uuid, and the MIG devices that were made of them."""
        made = {
            uuid: mig_device(devices[gpu], uuid) for (gpu, _), uuid in self._keeper.devices.items() if gpu in devices
        }
        return {**devices, **made}

    def _all_exist(self, part: ContainerGrant) -> bool:
        there = self._keeper.devices
        return all(share.mig is None or (share.uuid, share.mig) in there for share in part.shares)
