"""Whether kubelet's handling of init containers leaves open which container gets which device.

kubelet keeps the devices of a pod's init containers for the containers that start later, and hands those on, in an
undefined order, before it asks the device plugin for more; app containers and sidecars take them out of the pool
(devicemanager ``Allocate`` and ``devicesToAllocate``). A later container that asks for as many devices as are in the
pool, or for more, gets all of them: that is certain. One that asks for fewer gets any of them: no grant could predict
it. Each resource has a pool of its own; init containers that fill two are not supported.
"""

from collections.abc import Sequence

from purser.core.dialects.errors import Problems
from purser.core.model import ContainerKind, ContainerRequest
from purser.core.wording import counted


def check_init_containers(containers: Sequence[ContainerRequest], problems: Problems) -> None:
    """Notes every container that kubelet would serve by chance; containers are in kubelet's order."""
    pools: dict[str, tuple[int, str]] = {}
    for container in containers:
        count, resource = container.devices.count, container.devices.resource
        pool, owner = pools.get(resource, (0, ""))
        if count < pool:
            problems.add(_ambiguous(container, owner, pool))
        if container.kind is not ContainerKind.INIT:
            pools.pop(resource, None)
            continue
        if others := pools.keys() - {resource}:
            problems.add(
                f"init containers ask for both {resource} and {min(others)}: all init containers must ask for the same "
                "resource"
            )
        if count >= pool:
            pools[resource] = (count, container.name)


def check_shares_match(containers: Sequence[ContainerRequest], problems: Problems) -> None:
    """Notes containers whose shares cannot be on one device one after the other: a container is handed the devices of
    the init containers before it, and the book has a pod's share of a device for the whole life of the pod."""
    if all(container.kind is not ContainerKind.INIT for container in containers):
        return
    words = dict.fromkeys(container.devices.alike for container in containers)
    if len(words) > 1:
        there = " and ".join(word or "whole devices" for word in words)
        problems.add(
            f"the pod has init containers, but its containers ask for {there}: all containers must ask for shares of "
            "the same size and kind, or all for whole devices"
        )


def _ambiguous(container: ContainerRequest, owner: str, pool: int) -> str:
    count = container.devices.count
    return (
        f'container "{container.name}" asks for {counted(count, "device")}, and the earlier init container "{owner}" '
        f"asks for {pool}. kubelet reuses init containers' devices in random order, so it is unknown which devices "
        f'"{container.name}" gets. Ask for at least {pool} in "{container.name}", or for at most {count} in "{owner}"'
    )
