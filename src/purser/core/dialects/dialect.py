"""What a resource vocabulary must be able to do: the seam between `purser.core.dialects` and its modules."""

from typing import Protocol

from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import NotWholeError, whole_number
from purser.core.dialects.selectors import Selectors
from purser.core.model import DeviceRequest, Grant, NodeInventory
from purser.core.pod.manifest import ContainerSpec, PodManifest

MAX_DEVICES_ASKED = 1024
"""More devices than any one node has."""


class Dialect(Protocol):
    """One vocabulary; the modules beside this one are its implementations."""

    RESOURCES: tuple[str, ...]
    """The resource names that belong to it."""

    RECORD_ANNOTATIONS: tuple[str, ...]
    """Pod annotations in which its own scheduler records a placement: nobody but a scheduler may write them."""

    def claims(self, container: ContainerSpec) -> bool:
        """Whether the container speaks it and asks for something. Never raises."""
        ...

    def parse_container(
        self, container: ContainerSpec, selectors: Selectors, problems: Problems
    ) -> DeviceRequest | None:
        """What a container that it claims asks for; None where that makes no sense, which is noted."""
        ...

    def device_count(self, container: ContainerSpec) -> str | None:
        """The ``nvidia.com/gpu`` that the container must have for kubelet to call the agent."""
        ...

    def grant_annotations(self, pod: PodManifest, grant: Grant, inventory: NodeInventory) -> dict[str, str]:
        """What its own scheduler would record of this placement, for tools that read that."""
        ...


def asks_for(container: ContainerSpec, resource: str) -> bool:
    """Whether a container names a resource with anything but zero, sense or nonsense."""
    text = container.quantity(resource)
    if text is None:
        return False
    try:
        return whole_number(text) != 0
    except NotWholeError:
        return True
