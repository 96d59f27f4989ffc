"""NVIDIA's own vocabulary: ``nvidia.com/gpu`` and nothing else asks for whole GPUs.

HAMi's webhook makes the same of it: without any share it sets ``nvidia.com/gpucores`` to 100. ``nvidia.com/gpu: 0`` is
Kubernetes' way to say no GPU, and asks for none.
"""

from collections.abc import Mapping

from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import amount
from purser.core.dialects.selectors import Selectors
from purser.core.model import DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerSpec, PodManifest

WORDS: Mapping[str, Word] = {}
RECORDS: Mapping[str, str] = {}


def claims(container: ContainerSpec) -> bool:
    """Whether the container asks for GPUs."""
    return asks_for(container, GPU_RESOURCE)


def parse_container(container: ContainerSpec, selectors: Selectors, problems: Problems) -> DeviceRequest | None:
    """Whole GPUs."""
    count = amount(container, GPU_RESOURCE, 1, MAX_DEVICES_ASKED, "a number of GPUs", problems)
    if count is None:
        return None
    return whole_cards(count, selectors)


def whole_cards(count: int, selectors: Selectors) -> DeviceRequest:
    """A request for GPUs that nobody else uses."""
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
    )


def device_count(container: ContainerSpec) -> str | None:
    """As written."""
    return container.quantity(GPU_RESOURCE)


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory) -> dict[str, str]:
    """Nothing: kube-scheduler records no devices."""
    return {}
