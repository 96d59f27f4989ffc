"""NVIDIA's own vocabulary: ``nvidia.com/gpu`` and nothing else asks for whole GPUs; ``nvidia.com/gpu.shared``,
``nvidia.com/mig-1g.5gb`` and the like for devices that are listed so.

HAMi's webhook makes the same of ``nvidia.com/gpu``: without any share it sets ``nvidia.com/gpucores`` to 100. Zero of a
resource is Kubernetes' way to say none, and asks for none. Where a node's devices are divided into equal parts, it is
parts that are asked for.
"""

from collections.abc import Mapping
from itertools import chain, islice

import msgspec

from purser.core.device.resources import is_gpu_resource
from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import amount
from purser.core.dialects.selectors import Selectors
from purser.core.model import ContainerGrant, Device, DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest

WORDS: Mapping[str, Word] = {}
RECORDS: Mapping[str, str] = {}
MARKS: frozenset[str] = frozenset()


MAX_NAMED_RESOURCES = 16
"""Resources of devices in a container's limits and requests that are looked at one by one. The API server accepts a
hundred thousand; a container with more than this is treated as a mixture, whatever the amounts are."""


def resources(container: ContainerSpec) -> tuple[str, ...]:
    """The resources of devices that the container asks for, in sense or nonsense, sorted; of more than
    `MAX_NAMED_RESOURCES` some."""
    found = filter(is_gpu_resource, chain(container.limits, container.requests))
    named = tuple(islice(found, 2 * MAX_NAMED_RESOURCES + 1))
    resources_named = tuple(sorted(set(named)))
    if len(resources_named) > MAX_NAMED_RESOURCES:
        return resources_named
    return tuple(resource for resource in resources_named if asks_for(container, resource))


def claims(pod: PodManifest, container: ContainerSpec) -> bool:
    """Whether the container asks for devices."""
    return bool(resources(container))


def parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
) -> DeviceRequest | None:
    """Whole devices of one resource, or parts of them."""
    resource = resources(container)[0]
    what = "GPUs" if resource == GPU_RESOURCE else "devices"
    count = amount(container, resource, 1, MAX_DEVICES_ASKED, f"a number of {what}", problems)
    if count is None:
        return None
    return msgspec.structs.replace(whole_gpus(count, selectors), resource=resource)


def whole_gpus(count: int, selectors: Selectors) -> DeviceRequest:
    """A request for exclusive GPUs."""
    return DeviceRequest(
        count=count,
        memory_percent=100,
        cores_percent=100,
        models_allowed=selectors.models_allowed,
        models_denied=selectors.models_denied,
        uuids_allowed=selectors.uuids_allowed,
        uuids_denied=selectors.uuids_denied,
        numa_bind=selectors.numa_bind,
        modes_allowed=selectors.modes_allowed,
        mig_profiles=selectors.mig_profiles,
    )


def limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    """GPUs as written."""
    count = container.quantity(GPU_RESOURCE)
    return {} if count is None else {GPU_RESOURCE: count}


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
    """Nothing: kube-scheduler records no devices."""
    return {}


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """None but those that name the devices."""
    return {}
