"""What a resource vocabulary must be able to do: the seam between `purser.core.dialects` and its modules."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import is_zero
from purser.core.dialects.selectors import Selectors
from purser.core.ledger import Usage
from purser.core.model import ContainerGrant, Device, DeviceRequest, Grant, NodeInventory
from purser.core.pod.manifest import ContainerSpec, PodManifest

MAX_DEVICES_ASKED = 1024
"""More devices than any one node has."""


class Word(msgspec.Struct, frozen=True):
    """A resource of a vocabulary: what it says, and how much of it a node lists.

    What is listed is never less than containers can ask for in this word, see `purser.core.node.amounts`.
    """

    about: str
    """In a sentence, for the reference."""
    of_device: Callable[[Device], int]
    """What a node lists for a device."""
    of_usage: Callable[[Usage], int]
    """The holder's share of that."""
    unit_mib: int = 1
    """Of a word for memory, of which both are MiB: what one of it is, where nothing else is said."""


class Dialect(Protocol):
    """One vocabulary; the modules beside this one are its implementations."""

    WORDS: Mapping[str, Word]
    """The resources of amounts that are its own; ``nvidia.com/gpu`` is common to all."""

    RECORDS: Mapping[str, str]
    """Pod annotations in which its own scheduler records a placement: only a scheduler may write them. The values
    describe what Purser records in them (see `grant_annotations`) for the reference; empty: nothing."""

    MARKS: frozenset[str]
    """Pod annotations that only its own users write: such a pod gets its records, whatever words it asks in."""

    def claims(self, pod: PodManifest, container: ContainerSpec) -> bool:
        """Whether the container of this pod speaks it and asks for something. Never raises."""
        ...

    def parse_container(
        self, pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
    ) -> DeviceRequest | None:
        """What a container that it claims asks for; None where that makes no sense, which is noted."""
        ...

    def limits(self, pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
        """What the container must name for kubelet to ask for its devices, most often ``nvidia.com/gpu`` alone; what it
        names already may be among it."""
        ...

    def grant_annotations(self, pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
        """What its own scheduler would record of this placement, by `RECORDS`, for tools that read that.

        ``at_ns``: when the pod is bound, in nanoseconds since 1970.
        """
        ...

    def environment(
        self, pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]
    ) -> dict[str, str]:
        """Variables that its own device plugin sets in a container that it claims, and that no other dialect has.
        ``devices``: the node's, by uuid."""
        ...


def asks_for(container: ContainerSpec, resource: str) -> bool:
    """Whether a container names a resource with anything but zero, sense or nonsense."""
    text = container.quantity(resource)
    return text is not None and not is_zero(text)
