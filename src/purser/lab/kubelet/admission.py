"""Admission of one pod: devices for every container, in kubelet's order, under policy ``none``."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.lab.kubelet import checkpoint
from purser.lab.kubelet.devicemanager import AllocationError, DeviceManager
from purser.lab.kubelet.plugins import PluginError, PluginServer
from purser.lab.kubelet.pods import ContainerView, Raw, containers_of, merged_first_wins, uid_of
from purser.lab.kubelet.runtime import Mount

UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"


class AdmissionError(Exception):
    """kubelet refuses the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Admission:
    """Gives pods their devices, one pod at a time (the caller sees to that)."""

    def __init__(
        self,
        manager: DeviceManager,
        plugins: PluginServer,
        checkpoint_path: Path,
        free_unused: Callable[[], None],
    ) -> None:
        self._manager = manager
        self._plugins = plugins
        self._checkpoint_path = checkpoint_path
        self._free_unused = free_unused

    async def admit(self, pod: Raw, *, is_running: bool = False) -> None:
        """Allocate everything that the pod's containers ask for. Raises `AdmissionError`; nothing is rolled back."""
        reusable: dict[str, set[str]] = {}
        for container in containers_of(pod):
            try:
                await self._allocate(uid_of(pod), container, reusable, is_running)
            except (AllocationError, PluginError) as error:
                message = f"Allocate failed due to {error}, which is unexpected"
                raise AdmissionError(UNEXPECTED_ADMISSION_ERROR, message) from error
        self._check_forgotten(pod)

    def save(self) -> None:
        """Write the checkpoint file, whole or not at all."""
        text = checkpoint.encode(self._manager.allocations(), self._manager.registered())
        temporary = self._checkpoint_path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(self._checkpoint_path)

    def _check_forgotten(self, pod: Raw) -> None:
        """Of a resource whose plugin stayed away for too long the node has none; one it never had is not looked at."""
        for container in containers_of(pod):
            for resource, requested in container.limits.items():
                if requested and resource in self._manager.removed:
                    message = (
                        f"Node didn't have enough resource: {resource}, requested: {requested}, used: 0, capacity: 0"
                    )
                    raise AdmissionError(f"OutOf{resource}", message)

    async def _allocate(
        self, uid: str, container: ContainerView, reusable: dict[str, set[str]], is_running: bool
    ) -> None:
        wanted = {name: n for name, n in container.limits.items() if self._manager.is_device_resource(name)}
        if not wanted:
            return
        self._free_unused()
        for resource, required in wanted.items():
            pool = reusable.setdefault(resource, set())
            await self._allocate_resource((uid, container.name), resource, required, pool, is_running)
            held = self._manager.held(uid, container.name).get(resource)
            if held is not None and container.is_init:
                pool |= held.device_ids
            elif held is not None:
                pool -= held.device_ids
        self.save()

    async def _allocate_resource(
        self, key: tuple[str, str], resource: str, required: int, pool: Collection[str], is_running: bool
    ) -> None:
        plan = self._manager.plan(key, resource, required, reusable=pool, is_running=is_running)
        if plan is None:
            return
        preferred = await self._plugins.preferred(resource, plan.question) if plan.question else ()
        ids = self._manager.choose(plan, preferred)
        response = await self._plugins.allocate(resource, sorted(ids))
        self._manager.hold(key, resource, ids, response.SerializeToString())


class RunOptions:
    """What the plugins' responses add to a container: the first response that sets a key wins."""

    def __init__(self, responses: list[api_pb2.ContainerAllocateResponse]) -> None:
        self.env = merged_first_wins(dict(response.envs) for response in responses)
        self.annotations = merged_first_wins(dict(response.annotations) for response in responses)
        devices = {device.container_path: device for r in reversed(responses) for device in r.devices}
        mounts = {mount.container_path: mount for r in reversed(responses) for mount in r.mounts}
        self.devices = tuple(devices)
        self.mounts = tuple(Mount(m.container_path, m.host_path, m.read_only) for m in mounts.values())
        self.cdi_devices = tuple(dict.fromkeys(device.name for r in responses for device in r.cdi_devices))


async def run_options(manager: DeviceManager, plugins: PluginServer, uid: str, container: ContainerView) -> RunOptions:
    """What a container is created with; asks PreStartContainer of the plugins that want it. Raises `PluginError`."""
    held = manager.held(uid, container.name)
    for resource, allocation in held.items():
        if manager.options(resource).pre_start_required and container.limits.get(resource, 0) > 0:
            await plugins.pre_start(resource, sorted(allocation.device_ids))
    return RunOptions([_response(allocation.response) for allocation in held.values()])


def _response(data: bytes) -> api_pb2.ContainerAllocateResponse:
    response: Any = api_pb2.ContainerAllocateResponse()
    response.ParseFromString(data)
    return response  # type: ignore[no-any-return]
